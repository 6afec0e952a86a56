"""Caches that the caller owns: no copy, no second cache, and what the caller sees."""

from __future__ import annotations

import logging

import etrt
import pytest
import torch
from etrt import ExportError, KVCache
from programs import Parts, save
from torch import nn
from torch.export import Dim

HEADS, CAPACITY, DIM, MOST = 2, 64, 8, 8
CACHE_BYTES = HEADS * CAPACITY * DIM * 4


def rows(count: int, start: int = 0) -> torch.Tensor:
    values = torch.arange(HEADS * count * DIM) + start
    return values.float().view(1, HEADS, count, DIM)


def at(position: int) -> torch.Tensor:
    return torch.tensor([position])


def empty(value: float = 0) -> torch.Tensor:
    return torch.full((1, HEADS, CAPACITY, DIM), float(value))


def total(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """As x: the rows of x, and the sums of the cache."""
    return x + cache.sum(2, keepdim=True)


class Input(nn.Module):
    """The cache is an input."""

    def forward(self, x: torch.Tensor, position: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(2, position + torch.arange(x.shape[2]), x)
        return total(cache, x)


class InputOp(nn.Module):
    """The cache is an input, appended with the operator."""

    def forward(self, x: torch.Tensor, position: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        new = torch.ops.etrt.kv_cache_update(cache, x, position, 2)
        cache.copy_(new)
        return total(new, x)


class Above(nn.Module):
    """The cache is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", empty(1))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.cache[:, :, position + torch.arange(x.shape[2])] = x
        return total(self.cache, x)


class Two(nn.Module):
    """A KVCache."""

    def __init__(self) -> None:
        super().__init__()
        self.kv = KVCache(1, HEADS, CAPACITY, DIM)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        k, v = self.kv.update(x, 2 * x, position)
        return total(k, x) - total(v, x)


class Whole(nn.Module):
    """Changes all of its buffer at each run."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.h.copy_(self.h * 0.5 + x)
        return self.h + 1


def export(module: nn.Module, **options) -> etrt.Exported:
    """prefill (1 to MOST rows) and decode (1)."""
    more = (empty(),) if isinstance(module, (Input, InputOp)) else ()
    return etrt.export(
        {"prefill": module, "decode": module},
        {"prefill": (rows(3), at(0), *more), "decode": (rows(1), at(0), *more)},
        {"prefill": ({2: Dim("rows", min=1, max=MOST)}, None, *(None for _ in more))},
        **options,
    )


@pytest.fixture(scope="module")
def exports():
    return {
        "input": export(Input()),
        "input, with the operator": export(InputOp()),
        "buffer": export(Above(), ownership="caller"),
        "two buffers": export(Two(), ownership="caller"),
        "one of two": export(Two(), ownership={"kv.k": "caller"}),
    }


NAMES = ["input", "input, with the operator", "buffer", "two buffers", "one of two"]
OWNED = {"input": 1, "input, with the operator": 1, "buffer": 1, "two buffers": 2, "one of two": 1}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["prefill", "decode"])
def test_nothing_is_copied_and_no_second_cache_is_planned(exports, name, method):
    parts = Parts(exports[name].buffer)
    assert parts.operators(method) == ["delegate"]
    # Buffers are in the program's memory once; inputs are the caller's.
    buffers = 0 if name.startswith("input") else OWNED[name]
    outputs = MOST * HEADS * DIM * 4
    assert buffers * CACHE_BYTES <= parts.planned_bytes(method) <= buffers * CACHE_BYTES + outputs
    plan = next(p for p in parts.file.program.execution_plan if p.name == method)
    assert len(plan.outputs) == 1, "a method returns what it returns in PyTorch"


@pytest.mark.parametrize("name", NAMES)
def test_the_blob_says_who_owns_what(exports, name):
    for method in ("prefill", "decode"):
        said = Parts(exports[name].buffer).blob(method)
        owners = sorted(alias.ownership for alias in said.aliases)
        assert owners == ["caller"] * OWNED[name] + ["session"] * (name == "one of two")
        assert {alias.kind for alias in said.aliases} == {"kv_cache_update"}
        assert said.version == ("TR03" if name == "one of two" else "TR02")
        assert said.position.input == "position"
        if name == "one of two":
            (session,) = [s for s in said.states if s.ownership == "session"]
            assert session.id == "kv.v"


def test_methods_share_one_engine(exports):
    for exported in exports.values():
        assert len(Parts(exported.buffer).engines()) == 1


@pytest.mark.parametrize("name", ["input", "input, with the operator"])
def test_the_caller_sees_the_update_in_its_own_tensor(exports, tmp_path, name):
    """And what it wrote before is used; rows outside the update stay as they were."""
    program = save(exports[name], tmp_path)
    prefill, decode = program.method("prefill"), program.method("decode")
    mine, eager = empty(3), empty(3)
    where = mine.data_ptr()
    before = etrt.stats()
    module = Input()
    assert torch.equal(prefill(rows(5), at(0), mine)[0], module(rows(5), at(0), eager))
    assert torch.equal(mine, eager)
    mine[:, :, 5], eager[:, :, 5] = 9, 9  # The caller's own append.
    assert torch.equal(decode(rows(1, 70), at(6), mine)[0], module(rows(1, 70), at(6), eager))
    assert torch.equal(mine, eager)
    assert mine.data_ptr() == where
    after = etrt.stats()
    assert after["kv_bytes_copied"] == before["kv_bytes_copied"]
    assert after["sessions"] == before["sessions"]


def test_many_caches_one_at_a_time(exports, tmp_path):
    decode = save(exports["input"], tmp_path).method("decode")
    caches = [empty() for _ in range(4)]
    before = etrt.stats()
    for position in range(3):
        for i, cache in enumerate(caches):
            decode(rows(1, 10 * i + position), at(position), cache)
    assert etrt.stats()["rebinds"] - before["rebinds"] == 12
    for i, cache in enumerate(caches):
        for position in range(3):
            assert torch.equal(cache[:, :, position : position + 1], rows(1, 10 * i + position))
        assert not cache[:, :, 3:].any()
    before = etrt.stats()
    for position in range(3, 6):
        decode(rows(1), at(position), caches[-1])
    assert etrt.stats()["rebinds"] == before["rebinds"]


def test_a_buffer_above_lives_with_the_loaded_method(exports, tmp_path):
    """It begins as it was at export, in every load."""
    for load in range(2):
        program = save(exports["buffer"], tmp_path, f"{load}.pte")
        decode, eager = program.method("decode"), Above()
        for position in range(3):
            x = rows(1, position)
            assert torch.equal(decode(x, at(position))[0], eager(x, at(position)))


def test_one_method_can_have_both_owners(exports, tmp_path):
    decode, eager = save(exports["one of two"], tmp_path).method("decode"), Two()
    with pytest.raises(etrt.EtrtError, match="no session is selected"):
        decode(rows(1), at(0))
    with etrt.Session() as session:
        for position in range(3):
            x = rows(1, position)
            assert torch.equal(decode(x, at(position))[0], eager(x, at(position)))
        assert [state["id"] for state in session.states()] == ["kv.v"]
        assert torch.equal(session.view("kv.v"), eager.kv.v)
        assert session.length() == 3


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        (empty().double(), "input 2 is torch.float64; expected torch.float32"),
        (empty()[:, :, :-1].contiguous(), r"\[1, 2, 63, 8\]"),
        (torch.zeros(1, CAPACITY, HEADS, DIM).transpose(1, 2), "dim order|strides|contiguous"),
    ],
    ids=["dtype", "shape", "dim order"],
)
def test_a_wrong_cache_is_refused(exports, tmp_path, cache, message):
    decode = save(exports["input"], tmp_path).method("decode")
    with pytest.raises(etrt.EtrtError, match=message):
        decode(rows(1), at(0), cache)
    assert not cache.any()
    good = empty()
    decode(rows(1, 1), at(0), good)
    assert torch.equal(good[:, :, :1], rows(1, 1))


@pytest.mark.parametrize("position", [CAPACITY, -1])
def test_positions_outside_the_callers_cache(exports, tmp_path, position):
    decode = save(exports["input"], tmp_path).method("decode")
    cache = empty()
    with pytest.raises(etrt.EtrtError, match=f"{position}"):
        decode(rows(1, 1), at(position), cache)
    assert not cache.any()
    decode(rows(1, 1), at(CAPACITY - 1), cache)
    assert torch.equal(cache[:, :, -1:], rows(1, 1))


def test_what_cannot_be_the_callers():
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
            cache.mul_(2)
            return x + cache

    with pytest.raises(ExportError, match="'cache' of the caller isn't changed by an append at a position"):
        etrt.export(Scaled(), (torch.ones(4), torch.ones(4)))

    class Silent(Input):
        def forward(self, x: torch.Tensor, position: torch.Tensor, cache: torch.Tensor) -> None:
            super().forward(x, position, cache)

    with pytest.raises(ExportError, match="returns nothing"):
        etrt.export(Silent(), (rows(1), at(0), empty()))
    with pytest.raises(ExportError, match=r"ownership\['k'\]: the method changes no such buffer; .*'cache'"):
        etrt.export(Above(), (rows(1), at(0)), ownership={"k": "caller"})
    with pytest.raises(ExportError, match="ownership is 'mine'; expected one of"):
        etrt.export(Above(), (rows(1), at(0)), ownership={"cache": "mine"})


def test_a_buffer_of_the_caller_that_is_written_whole(tmp_path, caplog):
    """It works, slowly, and is warned about."""
    with caplog.at_level(logging.WARNING, logger="etrt"):
        exported = etrt.export(Whole(), (torch.ones(4),), ownership="caller")
    assert "buffer 'h' of the caller" in caplog.text
    method, eager = save(exported, tmp_path).method("forward"), Whole()
    for _ in range(3):
        assert torch.equal(method(torch.ones(4))[0], eager(torch.ones(4)))
