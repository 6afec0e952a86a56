"""Appends to plain buffers: recognised ones are in place, others swap; all compute what eager does."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import etrt
import pytest
import torch
from programs import Parts, save
from torch import nn
from torch.export import Dim

HEADS, CAPACITY, DIM = 2, 16, 4
Append = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


class Buffer(nn.Module):
    """Appends x [batch, HEADS, T, DIM] to ``cache`` and returns the sums of the cache's rows up to each."""

    def __init__(self, append: Append, batch: int = 1, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(batch, HEADS, CAPACITY, DIM, dtype=dtype))
        self.append = append

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.append(self.cache, x, position)
        return self.cache.cumsum(2)


def arange(x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """The index of each row of x."""
    return position + torch.arange(x.shape[2])


def start(x: torch.Tensor, position: torch.Tensor) -> int:
    """The position as a number, within the cache."""
    value = position.item()
    torch._check(value >= 0)
    torch._check(value + x.shape[2] <= CAPACITY)
    return value


def index_copy(cache, x, position):
    cache.index_copy_(2, arange(x, position), x)


def index_copy_negative_dim(cache, x, position):
    cache.index_copy_(-2, arange(x, position), x)


def index_copy_of_indices(cache, x, position):
    cache.index_copy_(2, position, x)


def index_assign(cache, x, position):
    cache[:, :, arange(x, position)] = x


def index_assign_of_indices(cache, x, position):
    cache[:, :, position] = x


def index_put(cache, x, position):
    # None for a whole dim is left out of the type of index_put_, but not of the operator.
    torch.ops.aten.index_put_(cache, (None, None, arange(x, position)), x)


def index_assign_of_rows(cache, x, position):
    cache[torch.arange(cache.shape[0]), :, position] = x.squeeze(2)


def slice_assign(cache, x, position):
    p = start(x, position)
    cache[:, :, p : p + x.shape[2]] = x


def narrow(cache, x, position):
    cache.narrow(2, start(x, position), x.shape[2]).copy_(x)


def select_assign(cache, x, position):
    cache.select(2, start(x, position)).copy_(x.squeeze(2))


def scalar_index_put(cache, x, position):
    torch.ops.aten.index_put_(cache, (None, None, position), x.squeeze(2))


def functional_index_copy(cache, x, position):
    cache.copy_(cache.index_copy(2, arange(x, position), x))


def functional_slice_scatter(cache, x, position):
    p = start(x, position)
    cache.copy_(cache.slice_scatter(x, 2, p, p + x.shape[2]))


def casting(cache, x, position):
    cache[:, :, arange(x, position)] = x.half()


def accumulate(cache, x, position):
    torch.ops.aten.index_put_(cache, (None, None, arange(x, position)), x, True)


def read_before(cache, x, position):
    cache[:, :, arange(x, position)] = x + cache.sum(2, keepdim=True)


def computed_position(cache, x, position):
    cache[:, :, arange(x, position * 2)] = x


def strided(cache, x, position):
    cache[:, :, position + 2 * torch.arange(x.shape[2])] = x


def broadcast(cache, x, position):
    cache[:, :, arange(x, position)] = x[:, :1]


def two_dims(cache, x, position):
    heads = torch.arange(HEADS).unsqueeze(-1)
    cache[:, heads, arange(x, position)] = x


def whole(cache, x, position):
    cache.copy_(cache * 0.5 + x.sum(2, keepdim=True) + position)


def twice(cache, x, position):
    cache[:, :, arange(x, position)] = x
    cache[:, :, arange(x, position)] = x * 2


# Positions of two runs, three rows each; one row where T is fixed.
ONE, INDICES = ([0], [3]), ([0, 1, 2], [3, 4, 5])
RECOGNISED: dict[Append, tuple[list[int] | int, list[int] | int]] = {
    index_copy: ONE,
    index_copy_negative_dim: ONE,
    index_copy_of_indices: INDICES,
    index_assign: ONE,
    index_assign_of_indices: INDICES,
    index_put: ONE,
    slice_assign: ONE,
    narrow: ONE,
    functional_index_copy: ONE,
    functional_slice_scatter: ONE,
    casting: ONE,
    scalar_index_put: (0, 1),
    index_assign_of_rows: ([0, 0], [1, 0]),
}
# Why each isn't: part of the warning; "" where nothing looks like an append.
OTHERS = {
    accumulate: "it accumulates",
    read_before: "reads the buffer as it was before the update",
    computed_position: "its position isn't an input of the method",
    strided: "its position isn't an input of the method",
    broadcast: "its update has shape",
    two_dims: "it has indices in 2 dims",
    twice: "it doesn't update the buffer as it was before the run",
    select_assign: "",
    whole: "",
}
ONE_ROW = (select_assign, scalar_index_put, index_assign_of_rows)


def batch(append: Append) -> int:
    return 2 if append is index_assign_of_rows else 1


def module(append: Append) -> Buffer:
    return Buffer(append, batch(append), torch.float16 if append is casting else torch.float32)


def rows(append: Append, first: int = 1) -> torch.Tensor:
    shape = (batch(append), HEADS, 1 if append in ONE_ROW else 3, DIM)
    return torch.arange(first, first + torch.Size(shape).numel()).float().view(shape)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A method for each append, in one program; what was logged meanwhile."""
    records: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())

    tokens = Dim("tokens", min=1, max=8)
    methods, examples, shapes = {}, {}, {}
    for append in [*RECOGNISED, *OTHERS]:
        name = append.__name__
        methods[name] = module(append)
        position, _ = RECOGNISED.get(append, ONE)
        examples[name] = (rows(append), torch.tensor(position))
        index_for_each = {0: tokens} if position == INDICES[0] else None
        shapes[name] = None if append in ONE_ROW else ({2: tokens}, index_for_each)
    handler = Keep()
    logging.getLogger("etrt").addHandler(handler)
    try:
        program = etrt.export(methods, examples, shapes)
    finally:
        logging.getLogger("etrt").removeHandler(handler)
    return program, save(program, tmp_path_factory.mktemp("patterns")), records


@pytest.mark.parametrize("append", RECOGNISED, ids=lambda f: f.__name__)
def test_recognised_appends_are_in_place(exported, append):
    program, _, records = exported
    ((_, state),) = Parts(program.buffer).states(append.__name__).items()
    assert (state.update, state.sequence_dim) == ("in_place", 2)
    assert not [r for r in records if f"{append.__name__!r}" in r]


@pytest.mark.parametrize("append", OTHERS, ids=lambda f: f.__name__)
def test_what_is_not_recognised_swaps(exported, append):
    program, _, records = exported
    ((_, state),) = Parts(program.buffer).states(append.__name__).items()
    assert (state.update, state.sequence_dim) == ("swap", None)
    (told,) = [r for r in records if f"{append.__name__!r}" in r] or [""]
    if OTHERS[append]:
        assert re.search(OTHERS[append], told), told
    else:
        assert told == ""


@pytest.mark.parametrize("append", [*RECOGNISED, *OTHERS], ids=lambda f: f.__name__)
def test_exported_is_eager(exported, append):
    _, program, _ = exported
    eager = module(append)
    method = program.method(append.__name__)
    positions = RECOGNISED.get(append, ONE)
    copied = etrt.stats()["kv_bytes_copied"]
    with etrt.Session() as session:
        for turn, position in enumerate(positions):
            x, at = rows(append, first=1 + 7 * turn), torch.tensor(position)
            assert torch.equal(method(x, at)[0], eager(x, at)), f"run {turn}"
        ((state),) = session.states()
        assert torch.equal(session.view(state["id"]), eager.cache)
    assert etrt.stats()["kv_bytes_copied"] == copied


def test_the_host_checks_recognised_positions(exported):
    _, program, _ = exported
    for append, position, message in (
        (slice_assign, [14], "capacity 16"),
        (index_assign, [2], "hole"),
        (index_copy_of_indices, [0, 2, 1], "consecutive"),
        (index_assign_of_rows, [0, 16], "capacity 16"),
    ):
        x = rows(append)
        with etrt.Session() as session, pytest.raises(etrt.EtrtError, match=message):
            program.method(append.__name__)(x, torch.tensor(position))
        assert session.length() == 0
