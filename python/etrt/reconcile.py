"""Makes the methods agree on the states that they share."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from etrt.engines import EngineEntry, EngineState

_LOG = logging.getLogger("etrt")


def reconcile(entries: Sequence[EngineEntry]) -> None:
    """Settles, for each state, one update and one sequence dim for all entries; changes ``entries``.

    * A state is in place if every entry that writes it can write in place. Else it swaps everywhere: an engine
      writes the whole tensor, also where a kv_cache_update makes it.
    * A state is a sequence if every entry that writes it appends along one and the same dim.
    * Positions are kept for entries that write states only where all of them have one: an entry that writes without
      telling how far would leave the lengths of its states wrong for the others.
    * The caller's caches are in place; they are sequences where their entry keeps its position.
    """
    writers: dict[str, list[EngineEntry]] = defaultdict(list)
    for entry in entries:
        for state in _session_states(entry):
            if state.output:
                writers[state.id].append(entry)

    in_place, sequence_dims = {}, {}
    for id_, its_writers in writers.items():
        uses = [next(s for s in _session_states(entry) if s.id == id_) for entry in its_writers]
        in_place[id_] = all(use.in_place for use in uses)
        if any(use.in_place for use in uses) and not in_place[id_]:
            slow = next(e for e, use in zip(its_writers, uses, strict=True) if not use.in_place)
            _LOG.warning(
                "state %r is written whole by method %r, so that no method updates it in place; append with "
                "etrt.KVCache.update in all of them", id_, slow.method
            )  # fmt: skip
        dims = {use.sequence_dim for use in uses}
        sequence_dims[id_] = dims.pop() if len(dims) == 1 else None

    for group in _connected(writers):
        without = [entry for entry in group if entry.position is None]
        having = [entry for entry in group if entry.position is not None]
        if having and without:
            _LOG.warning(
                "method %r writes states of method %r without a position; their lengths aren't kept, and positions "
                "aren't checked", without[0].method, having[0].method
            )  # fmt: skip
            for entry in group:
                entry.position = None
                for state in _session_states(entry):
                    if state.output:
                        sequence_dims[state.id] = None

    for entry in entries:
        entry.states = [
            replace(s, sequence_dim=s.sequence_dim if entry.position else None)
            if s.ownership == "caller"
            else replace(s, in_place=in_place[s.id], sequence_dim=sequence_dims[s.id])
            for s in entry.states
        ]


def _session_states(entry: EngineEntry) -> list[EngineState]:
    return [state for state in entry.states if state.ownership == "session"]


def _connected(writers: dict[str, list[EngineEntry]]) -> list[list[EngineEntry]]:
    """Entries that write a state in common, directly or through others."""
    groups: list[dict[str, EngineEntry]] = []
    for its_writers in writers.values():
        merged = {entry.name: entry for entry in its_writers}
        apart = []
        for group in groups:
            if merged.keys() & group.keys():
                merged |= group
            else:
                apart.append(group)
        groups = [*apart, merged]
    return [list(group.values()) for group in groups]
