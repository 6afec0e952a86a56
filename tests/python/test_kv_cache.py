"""KVCache and its operator, eager and exported alike."""

from __future__ import annotations

import etrt
import pytest
import torch
from etrt import KVCache
from etrt.ops import write_rows
from programs import Parts, save
from torch import nn
from torch.export import Dim

HEADS, CAPACITY, DIM = 2, 16, 4


def rows(count: int, batch: int = 1, dtype: torch.dtype = torch.float32, start: int = 0) -> torch.Tensor:
    """[batch, HEADS, count, DIM]; all values differ, and fit in int8."""
    values = torch.arange(batch * HEADS * count * DIM) + start
    return (values % 127 + 1).to(dtype).view(batch, HEADS, count, DIM)


def test_update_appends_and_returns_the_caches():
    cache = KVCache(1, HEADS, CAPACITY, DIM)
    assert cache.capacity == CAPACITY
    k, v = cache.update(rows(3), rows(3, start=50), torch.tensor([2]))
    assert k is cache.k and v is cache.v
    assert torch.equal(k[:, :, 2:5], rows(3)) and torch.equal(v[:, :, 2:5], rows(3, start=50))
    assert not k[:, :, :2].any() and not k[:, :, 5:].any()


def test_state_dict_has_the_caches():
    assert set(KVCache(1, 1, 4, 2).state_dict()) == {"k", "v"}


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    "position", [5, [5], [5, 6, 7]], ids=["a scalar", "one element", "an index for each row"]
)
def test_forms_of_position(position, dtype):
    cache = KVCache(1, HEADS, CAPACITY, DIM)
    k, _ = cache.update(rows(3), rows(3), torch.tensor(position, dtype=dtype))
    assert torch.equal(k[:, :, 5:8], rows(3))
    assert k.count_nonzero() == rows(3).numel()


def test_a_start_for_each_batch_row():
    cache = KVCache(2, HEADS, CAPACITY, DIM)
    k, _ = cache.update(rows(3, batch=2), rows(3, batch=2), torch.tensor([1, 13]))
    assert torch.equal(k[0, :, 1:4], rows(3, batch=2)[0])
    assert torch.equal(k[1, :, 13:16], rows(3, batch=2)[1])
    assert k.count_nonzero() == rows(3, batch=2).numel()


def test_one_start_for_all_batch_rows():
    cache = KVCache(2, HEADS, CAPACITY, DIM)
    k, _ = cache.update(rows(1, batch=2), rows(1, batch=2), torch.tensor([4]))
    assert torch.equal(k[:, :, 4:5], rows(1, batch=2))


@pytest.mark.parametrize(
    ("batch", "position", "message"),
    [
        (1, [14], r"rows \[14, 17\) of batch row 0 are outside the cache's capacity of 16"),
        (1, [-1], r"rows \[-1, 2\) of batch row 0"),
        (1, [14, 15, 16], r"rows \[14, 17\)"),
        (2, [0, 14], r"rows \[14, 17\) of batch row 1"),
    ],
)
def test_positions_outside_the_capacity(batch, position, message):
    cache = KVCache(batch, HEADS, CAPACITY, DIM)
    with pytest.raises(IndexError, match=message):
        cache.update(rows(3, batch), rows(3, batch), torch.tensor(position))
    assert not cache.k.any(), "nothing was written"


@pytest.mark.parametrize(
    ("update", "position", "message"),
    [
        (rows(3), torch.tensor([0, 2, 3]), r"position \[0, 2, 3\] isn't consecutive"),
        (rows(3), torch.tensor([2, 1, 0]), "isn't consecutive"),
        (
            rows(3),
            torch.tensor([0, 1]),
            r"position is \[2\]; expected a scalar, \[1\], \[3\] \(an index for each new",
        ),
        (rows(3), torch.tensor([[0]]), r"position is \[1, 1\]"),
        (rows(3), torch.tensor([0.0]), "position is float32; expected int32 or int64"),
        (rows(3), torch.tensor([0], dtype=torch.int16), "position is int16"),
        (
            rows(3).half(),
            torch.tensor([0]),
            "update is float16, cache is float32; cast the update to the cache's dtype",
        ),
        (
            rows(3)[..., :3],
            torch.tensor([0]),
            r"update is \[1, 2, 3, 3\]; a cache of \[1, 2, 16, 4\] .* takes \[1, 2, T, 4\]",
        ),
        (rows(3)[0], torch.tensor([0]), r"update is \[2, 3, 4\]"),
        (rows(3, batch=2), torch.tensor([0]), r"update is \[2, 2, 3, 4\]"),
    ],
)
def test_wrong_arguments_are_refused(update, position, message):
    cache = KVCache(1, HEADS, CAPACITY, DIM)
    with pytest.raises(ValueError, match=message):
        cache.update(update, update, position)
    assert not cache.k.any()


def test_positions_of_several_rows_are_refused_with_several_batch_rows():
    cache = KVCache(2, HEADS, CAPACITY, DIM)
    with pytest.raises(ValueError, match=r"position is \[3\]; .*\[2\] \(a start for each batch row\)"):
        cache.update(rows(3, 2), rows(3, 2), torch.arange(3))


@pytest.mark.parametrize("extents", [(0, 1, 1, 1), (1, 1, -4, 1)])
def test_extents_are_positive(extents):
    with pytest.raises(ValueError, match="expected a positive number"):
        KVCache(*extents)


def test_the_operator_is_functional():
    cache = torch.zeros(1, HEADS, CAPACITY, DIM)
    new = torch.ops.etrt.kv_cache_update(cache, rows(2), torch.tensor(3))
    assert not cache.any()
    assert torch.equal(new[:, :, 3:5], rows(2))
    with pytest.raises(ValueError, match=r"sequence_dim is 4; cache .* has dims 0 to 3"):
        torch.ops.etrt.kv_cache_update(cache, rows(2), torch.tensor(3), 4)


def test_the_out_variant_writes_rows_alone():
    """Into the cache's own memory, nothing else is touched; into another, the cache is copied."""
    own = torch.full((1, HEADS, CAPACITY, DIM), 7.0)
    result = torch.ops.etrt.kv_cache_update.out(own, rows(2), torch.tensor(3), 2, out=own)
    assert result.data_ptr() == own.data_ptr()
    assert (own == 7).sum() >= own.numel() - rows(2).numel()
    other = torch.zeros_like(own)
    torch.ops.etrt.kv_cache_update.out(own, rows(1), torch.tensor(0), 2, out=other)
    assert torch.equal(other[:, :, 1:], own[:, :, 1:])


@pytest.mark.parametrize("dim", [0, 1, 3])
def test_other_sequence_dims(dim):
    shape = [3, 2, 5, 4]
    shape[dim] = 16
    part = shape.copy()
    part[dim] = 2
    cache, update = torch.zeros(shape), torch.ones(part)
    write_rows(cache, update, torch.tensor([14]), dim)
    assert torch.equal(cache.narrow(dim, 14, 2), update)
    assert cache.sum() == update.sum()


def test_the_operator_passes_torch_checks():
    """Schema, fake tensors and functionalization, by PyTorch's own checker."""
    for position in (torch.tensor(1), torch.tensor([1]), torch.tensor([1, 2], dtype=torch.int32)):
        arguments = (torch.zeros(1, HEADS, CAPACITY, DIM), rows(2), position)
        torch.library.opcheck(
            torch.ops.etrt.kv_cache_update.default,
            arguments,
            test_utils=["test_schema", "test_faketensor"],
        )


class Appender(nn.Module):
    """Appends x to both caches and returns their sum as float32."""

    def __init__(self, dtype: torch.dtype, batch: int = 1) -> None:
        super().__init__()
        self.cache = KVCache(batch, HEADS, CAPACITY, DIM, dtype)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        k, v = self.cache.update(x, x, position)
        return k.to(torch.float32) + v.to(torch.float32)


# name -> dtype, batch, dtype of position, positions at two runs of three rows.
FORMS = {
    "float32": (torch.float32, 1, torch.int64, ([0], [3])),
    "float16": (torch.float16, 1, torch.int32, ([0], [3])),
    "bfloat16": (torch.bfloat16, 1, torch.int64, ([0], [3])),
    "int8": (torch.int8, 1, torch.int64, ([0], [3])),
    "scalar": (torch.float32, 1, torch.int32, (0, 3)),
    "indices": (torch.float32, 1, torch.int64, ([0, 1, 2], [3, 4, 5])),
    "batch": (torch.float32, 2, torch.int64, ([0, 0], [3, 1])),
}


@pytest.fixture(scope="module")
def exported():
    """A method for each of FORMS, in one program."""
    tokens = Dim("tokens", min=1, max=8)
    methods, examples, shapes = {}, {}, {}
    for name, (dtype, batch, kind, (position, _)) in FORMS.items():
        methods[name] = Appender(dtype, batch)
        examples[name] = (rows(3, batch, dtype), torch.tensor(position, dtype=kind))
        shapes[name] = ({2: tokens}, {0: tokens} if name == "indices" else None)
    return etrt.export(methods, examples, shapes)


@pytest.mark.parametrize("name", FORMS)
def test_exported_is_eager(exported, tmp_path, name):
    """Bit for bit, in the caches too; and in place."""
    dtype, batch, kind, positions = FORMS[name]
    eager = Appender(dtype, batch)
    method = save(exported, tmp_path).method(name)
    copied = etrt.stats()["kv_bytes_copied"]
    with etrt.Session() as session:
        for turn, position in enumerate(positions):
            x, at = rows(3, batch, dtype, start=20 * turn), torch.tensor(position, dtype=kind)
            assert torch.equal(method(x, at)[0], eager(x, at))
        (k, _) = (f"{name}/cache.{part}" for part in "kv")
        assert torch.equal(session.view(k), eager.cache.k)
        assert session.length() == (4 if name == "batch" else 6)
    assert etrt.stats()["kv_bytes_copied"] == copied


def test_exported_caches_are_in_place_sequences(exported):
    parts = Parts(exported.buffer)
    for name, (dtype, batch, _, _) in FORMS.items():
        states = parts.states(name)
        assert sorted(states) == [f"{name}/cache.k", f"{name}/cache.v"]
        for state in states.values():
            assert (state.update, state.sequence_dim, state.ownership) == ("in_place", 2, "session")
            assert (f"torch.{state.dtype}", state.shape) == (str(dtype), [batch, HEADS, CAPACITY, DIM])
        count = parts.blob(name).position.count
        assert (count.input, count.dim) == ("x", 2)


@pytest.mark.parametrize(
    ("name", "position", "message"),
    [
        ("float32", [14], "capacity 16"),
        ("float32", [-1], "position"),
        ("indices", [0, 2, 1], "consecutive"),
        ("batch", [0, 14], "capacity 16"),
    ],
)
def test_exported_refuses_what_eager_refuses(exported, tmp_path, name, position, message):
    dtype, batch, kind, _ = FORMS[name]
    eager, x, at = Appender(dtype, batch), rows(3, batch, dtype), torch.tensor(position, dtype=kind)
    with pytest.raises((IndexError, ValueError)):
        eager(x, at)
    method = save(exported, tmp_path).method(name)
    with etrt.Session() as session:
        with pytest.raises(etrt.EtrtError, match=message):
            method(x, at)
        assert (session.length(), session.status) == (0, "ready")
