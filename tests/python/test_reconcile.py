"""What methods that share states agree on."""

from __future__ import annotations

from dataclasses import replace

import etrt
import pytest
import torch
from etrt.engines import EngineEntry, EngineState
from etrt.position import Count, PositionInput
from etrt.reconcile import reconcile
from programs import Parts, save
from torch import nn

POSITION = PositionInput("position", Count(value=1))


def entry(name: str, *states: EngineState, position: bool = True) -> EngineEntry:
    """As a partition's, but without its program, which isn't looked at."""
    return EngineEntry(name, name, None, [], [], list(states), POSITION if position else None)  # type: ignore[arg-type]


def appended(id_: str, dim: int = 2) -> EngineState:
    return EngineState(id_, f"state.{id_}", f"next_state.{id_}", True, dim)


def written(id_: str) -> EngineState:
    return EngineState(id_, f"state.{id_}", f"next_state.{id_}", False, None)


def read(id_: str) -> EngineState:
    return EngineState(id_, f"state.{id_}", "", False, None)


def settle(*entries: EngineEntry) -> list[dict[str, tuple[bool, int | None]]]:
    """Of each entry: state -> in place, sequence dim."""
    reconcile(entries)
    return [{s.id: (s.in_place, s.sequence_dim) for s in e.states} for e in entries]


def test_alike_uses_stay(caplog):
    a, b = entry("a", appended("k"), written("h")), entry("b", appended("k"), written("h"))
    assert settle(a, b) == [{"k": (True, 2), "h": (False, None)}] * 2
    assert a.position == b.position == POSITION
    assert caplog.text == ""


def test_a_reader_takes_what_the_writer_has(caplog):
    a, b = entry("a", appended("k")), entry("b", read("k"), position=False)
    assert settle(a, b) == [{"k": (True, 2)}] * 2
    assert (a.position, b.position) == (POSITION, None)
    assert caplog.text == ""


def test_one_that_writes_whole_makes_all_swap(caplog):
    a, b = entry("a", appended("k"), appended("v")), entry("b", written("k"))
    assert settle(a, b) == [{"k": (False, None), "v": (True, 2)}, {"k": (False, None)}]
    assert "state 'k' is written whole by method 'b'" in caplog.text


def test_appends_along_two_dims_are_no_sequence():
    a, b = entry("a", appended("k", 1)), entry("b", appended("k", 2))
    assert settle(a, b) == [{"k": (True, None)}] * 2


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a"), ("b", "a", "c")])
def test_positions_are_kept_by_all_writers_or_none(caplog, order):
    """Those that meet through a third, too; others keep theirs."""
    entries = {
        "a": entry("a", appended("k"), written("h")),
        "b": entry("b", written("h"), written("g")),
        "c": entry("c", written("g"), position=False),
        "alone": entry("alone", appended("other")),
    }
    reconcile([*(entries[name] for name in order), entries["alone"]])
    assert [e.position for e in entries.values()] == [None, None, None, POSITION]
    assert {s.id: (s.in_place, s.sequence_dim) for s in entries["a"].states} == {
        "k": (True, None),
        "h": (False, None),
    }
    assert "writes states of method" in caplog.text
    assert "without a position" in caplog.text


def test_the_callers_caches_are_sequences_where_positions_are_kept():
    mine = EngineState("argument.cache", "cache", "cache.updated", True, 2, "caller")
    a, b = entry("a", mine, appended("k")), entry("b", written("k"))
    settle(a, b)
    assert a.states[0] == mine
    c, d = entry("c", mine, written("k")), entry("d", written("k"), position=False)
    settle(c, d)
    assert c.states[0] == replace(mine, sequence_dim=None)


class Both(nn.Module):
    """Appends to a cache of the caller and counts in a state of the session."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor, position: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        cache.index_copy_(2, position, x)
        return cache.cumsum(2) + self.count


class Counter(nn.Module):
    """Counts in the same state, without a position."""

    def __init__(self, both: Both) -> None:
        super().__init__()
        self.register_buffer("count", both.count)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(10)
        return x + self.count


def test_without_lengths_the_engine_itself_refuses_positions(tmp_path):
    """Too late for the session, which has to be reset; the caller's cache is as it was."""
    both = Both()
    x, cache = torch.ones(1, 2, 1, 4), torch.zeros(1, 2, 8, 4)
    exported = etrt.export(
        {"both": both, "counter": Counter(both)},
        {"both": (x, torch.tensor([0]), cache), "counter": (torch.ones(1),)},
    )
    assert Parts(exported.buffer).blob("both").position is None
    program = save(exported, tmp_path)
    run = program.method("both")
    with etrt.Session() as session:
        run(x, torch.tensor([0]), cache)
        program.method("counter")(torch.ones(1))
        (y,) = run(x, torch.tensor([1]), cache)
        assert torch.equal(session.view("count"), torch.tensor([12.0]))
        assert torch.equal(cache[:, :, :2], torch.ones(1, 2, 2, 4)) and not cache[:, :, 2:].any()
        assert y[0, 0, :, 0].tolist() == [13.0] + [14.0] * 7
        with pytest.raises(etrt.EtrtError):
            run(x, torch.tensor([8]), cache)
        assert session.status == "failed" and not cache[:, :, 2:].any()
        session.reset()
        assert run(x, torch.tensor([2]), cache)[0][0, 0, -1, 0] == 4
