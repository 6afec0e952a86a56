"""What the flags of ``etrt wrap`` say of a plan."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from etrt.errors import ExportError
from etrt.plan_tools import differ_in_place, read_bindings
from etrt.wrapping import PlanDescription, PlanProfile, PlanState, describe, read_plan

_ALIAS = re.compile(r"(?P<output>[^=]+)=(?P<input>.+?)(?::(?P<kind>user|kv_cache_update))?")
_STATE = re.compile(r"(?P<id>[^=]+)=(?P<input>.+?)(?:@(?P<dim>\d+))?")
_PROFILE = re.compile(r"(?P<method>\w+)=(?P<index>\d+)(?::(?P<extents>.+))?")
_EXTENT = re.compile(r"(?P<name>\w+)=(?P<low>\d+)(?:\.\.(?P<high>\d+))?")


def describe_by_flags(
    plan: Path,
    *,
    bindings: Path | None,
    binding: list[str],
    alias: list[str],
    state: list[str],
    position: str | None,
    count: str | None,
    profile: list[str],
    model_id: str | None,
    engine: str | None,
    in_place: bool,
) -> PlanDescription:
    """Flags in the form that ``etrt wrap --help`` gives.

    Raises:
        ExportError: one that isn't, or bindings that are neither given nor to be read from the plan here.
        OSError: a file that can't be read.
    """
    given: dict[str, Any] = {
        "aliases": dict(_alias(text) for text in alias),
        "states": dict(_state(text) for text in state),
        "position": position,
        "count": _count(count),
        "profiles": dict(_profile(text) for text in profile),
        "model_id": model_id,
        "engine": engine,
        "update": "in_place" if in_place else None,
    }
    return _describe(plan, _bindings(bindings, binding), {k: v for k, v in given.items() if v})


def check_in_place(plan: Path, description: PlanDescription) -> str:
    """Runs the plan with states in place and swapped; what came of it, a line for each method that differs.

    Raises:
        ExportError: the states aren't to share memory and would.
    """
    differ = {m: names for m, names in differ_in_place(read_plan(plan), description).items() if names}
    if not differ:
        return "in place and with states swapped, the results are the same"
    lines = [
        f"{method}: in place, {', '.join(names)} differ from the same run with states swapped"
        for method, names in differ.items()
    ]
    if description.update == "in_place":
        raise ExportError("\n".join([*lines, "this plan isn't safe in place: leave --in-place out"]))
    return "\n".join(lines)


def _bindings(path: Path | None, flags: list[str]) -> Path | list[str] | None:
    if path is not None and flags:
        raise ExportError("--bindings and --binding both say what the bindings are; give one of them")
    return flags or path


def _describe(plan: Path, bindings: Path | list[str] | None, given: dict[str, Any]) -> PlanDescription:
    if bindings is not None:
        return describe(bindings, **given)
    try:
        found, extents = read_bindings(given.get("engine", "tensorrt"), read_plan(plan))
    except ExportError as error:
        raise ExportError(
            f"give the plan's bindings, in a file with --bindings or each one with --binding: {error}"
        ) from None
    profiles = given.get("profiles") or {"forward": PlanProfile()}
    for method, profile in profiles.items():
        if profile.index not in extents:
            raise ExportError(
                f"--profile {method}={profile.index}: the plan has profiles 0 to {len(extents) - 1}"
            )
    filled = {m: PlanProfile(p.index, p.extents or extents[p.index]) for m, p in profiles.items()}
    return describe(found, **{**given, "profiles": filled})


def _match(pattern: re.Pattern[str], option: str, text: str, form: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ExportError(f"{option} {text}: expected {form}")
    return match


def _alias(text: str) -> tuple[str, tuple[str, str]]:
    match = _match(_ALIAS, "--alias", text, "OUTPUT=INPUT or OUTPUT=INPUT:kv_cache_update")
    return match["output"], (match["input"], match["kind"] or "user")


def _state(text: str) -> tuple[str, PlanState]:
    match = _match(_STATE, "--state", text, "ID=INPUT or ID=INPUT@DIM")
    return match["id"], PlanState(match["input"], None if match["dim"] is None else int(match["dim"]))


def _profile(text: str) -> tuple[str, PlanProfile]:
    match = _match(_PROFILE, "--profile", text, "METHOD=INDEX or METHOD=INDEX:n=1..32")
    extents = {}
    for part in match["extents"].split(",") if match["extents"] else []:
        found = _match(_EXTENT, "--profile", part, "an extent like n=1..32 or n=1")
        extents[found["name"]] = (int(found["low"]), int(found["high"] or found["low"]))
    return match["method"], PlanProfile(int(match["index"]), extents)


def _count(text: str | None) -> tuple[str, int] | int | None:
    if text is None:
        return None
    if text.isdigit():
        return int(text)
    name, dot, dim = text.rpartition(".")
    if not dot or not dim.isdigit():
        raise ExportError(f"--count {text}: expected INPUT.DIM, like update.2, or a number")
    return name, int(dim)
