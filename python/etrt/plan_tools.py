"""What a plan itself tells on a machine that can load it: its bindings, and whether it is safe in place."""

from __future__ import annotations

from typing import Any

from etrt.errors import EtrtError, ExportError
from etrt.wrapping import PlanBinding, PlanDescription


def read_bindings(
    engine: str, plan: bytes
) -> tuple[list[PlanBinding], dict[int, dict[str, tuple[int, int]]]]:
    """The bindings of a plan, and of each profile the ranges of the extents that vary.

    Extents that have the same ranges in every profile are taken for one and the same, "n"; if there are others,
    they are "n1", "n2", ...

    Raises:
        ExportError: this build or machine can't load the plan.
    """
    entries = list(_entries(engine, plan).values())
    names: dict[tuple[tuple[int, int], ...], str] = {}
    bindings = []
    for place, first in enumerate(entries[0]):
        shape: list[int | str] = []
        for dim in range(len(first["shape"])):
            ranges = tuple((e[place]["min"][dim], e[place]["max"][dim]) for e in entries)
            fixed = len({extent for pair in ranges for extent in pair}) == 1
            shape.append(ranges[0][0] if fixed else names.setdefault(ranges, f"n{len(names) or ''}"))
        bindings.append(PlanBinding(first["name"], first["dtype"], tuple(shape), first["is_input"]))
    extents = {i: {name: ranges[i] for ranges, name in names.items()} for i in range(len(entries))}
    return bindings, extents


def differ_in_place(plan: bytes, description: PlanDescription) -> dict[str, list[str]]:
    """Method -> the outputs that come out otherwise if all aliased outputs share their inputs' memory.

    Runs the plan, with made-up inputs. Without a difference there is evidence that sharing is safe, and no proof.

    Raises:
        ExportError: this build or machine can't load the plan, or it lacks a binding of the description.
    """
    from etrt import _core

    entries = _entries(description.engine, plan)
    differ = {}
    for method, profile in description.profiles.items():
        if str(profile.index) not in entries:
            raise ExportError(
                f"method {method!r}: the plan has no profile {profile.index}, only {len(entries)}"
            )
        places = {binding["name"]: i for i, binding in enumerate(entries[str(profile.index)])}
        missing = [
            name
            for pair in description.aliases.items()
            for name in (pair[0], pair[1][0])
            if name not in places
        ]
        if missing:
            raise ExportError(f"the plan has no binding {missing[0]!r}; it has {', '.join(places)}")
        pairs = [(places[source], places[output]) for output, (source, _) in description.aliases.items()]
        try:
            differ[method] = _core.differ_in_place(description.engine, plan, profile.index, pairs)
        except EtrtError as error:
            raise ExportError(f"method {method!r}: {error}") from None
    return differ


def _entries(engine: str, plan: bytes) -> dict[str, list[dict[str, Any]]]:
    try:
        from etrt import _core

        return _core.engine_bindings(engine, plan)
    except ImportError as error:
        raise ExportError(
            f"the compiled module of etrt is missing, so the plan can't be loaded: {error}"
        ) from None
    except EtrtError as error:
        raise ExportError(f"the plan can't be loaded here: {error}") from None
