"""``etrt wrap``: see etrt.wrapping."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from etrt.errors import ExportError
from etrt.plan_tools import differ_in_place, read_bindings
from etrt.wrapping import PlanDescription, PlanProfile, PlanState, describe, read_plan, wrap

_ALIAS = re.compile(r"(?P<output>[^=]+)=(?P<input>.+?)(?::(?P<kind>user|kv_cache_update))?")
_STATE = re.compile(r"(?P<id>[^=]+)=(?P<input>.+?)(?:@(?P<dim>\d+))?")
_PROFILE = re.compile(r"(?P<method>\w+)=(?P<index>\d+)(?::(?P<extents>.+))?")
_EXTENT = re.compile(r"(?P<name>\w+)=(?P<low>\d+)(?:\.\.(?P<high>\d+))?")


def wrap_command(
    plan: Annotated[Path, typer.Argument(help="Serialized TensorRT engine.", metavar="ENGINE.plan")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .pte file to write.")],
    bindings: Annotated[
        Path | None, typer.Option(help="JSON file with bindings and, if you like, what the flags below say.")
    ] = None,
    binding: Annotated[
        list[str] | None,
        typer.Option(
            help="in:NAME:DTYPE:EXTENTS or out:NAME:DTYPE:EXTENTS, like in:update:float16:1,2,n,8. Repeat, "
            "in order."
        ),
    ] = None,
    alias: Annotated[
        list[str] | None,
        typer.Option(
            help="OUTPUT=INPUT: OUTPUT is INPUT's next value. Add :kv_cache_update if the engine itself "
            "writes in place."
        ),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            help="ID=INPUT: a session keeps INPUT. ID=INPUT@DIM: a sequence along DIM, like k=cache@2."
        ),
    ] = None,
    position: Annotated[str | None, typer.Option(help="Input that says where a run appends.")] = None,
    count: Annotated[
        str | None, typer.Option(help="How many positions a run appends: INPUT.DIM, or a number.")
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            help="METHOD=INDEX, or METHOD=INDEX:n=1..32 with the range of each named extent. Repeat."
        ),
    ] = None,
    model_id: Annotated[str | None, typer.Option(help="Namespace of the state ids.")] = None,
    engine: Annotated[str | None, typer.Option(help="tensorrt or tensorrt_rtx.")] = None,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place",
            help="Inputs and their next values share memory. Only for an engine that reads each element "
            "before it writes it.",
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Run the engine both ways on the GPU and compare.")
    ] = False,
) -> None:
    """Make a program (.pte) of a ready TensorRT plan, with one method for each optimization profile."""
    try:
        given: dict[str, Any] = {
            "aliases": dict(_alias(text) for text in alias or []),
            "states": dict(_state(text) for text in state or []),
            "position": position,
            "count": _count(count),
            "profiles": dict(_profile(text) for text in profile or []),
            "model_id": model_id,
            "engine": engine,
            "update": "in_place" if in_place else None,
        }
        description = _describe(
            plan, _bindings(bindings, binding or []), {k: v for k, v in given.items() if v}
        )
        if check:
            _check(plan, description)
        path = wrap(plan, description).save(output)
    except (ExportError, OSError) as error:
        raise _exit(str(error)) from None
    typer.echo(f"wrote {path}, {path.stat().st_size} bytes")


def _exit(message: str) -> typer.Exit:
    typer.echo(f"etrt wrap: {message}", err=True)
    return typer.Exit(1)


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


def _check(plan: Path, description: PlanDescription) -> None:
    """Raises ExportError if the states aren't to share memory and would."""
    differ = {m: names for m, names in differ_in_place(read_plan(plan), description).items() if names}
    for method, names in differ.items():
        typer.echo(f"{method}: in place, {', '.join(names)} differ from the same run with states swapped")
    if not differ:
        typer.echo("in place and with states swapped, the results are the same")
    elif description.update == "in_place":
        raise ExportError("this plan isn't safe in place: leave --in-place out")


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
