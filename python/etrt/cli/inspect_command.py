"""``etrt inspect``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from etrt.blob import Blob
    from etrt.inspecting import Delegate, Inspected


def inspect_command(
    file: Annotated[Path, typer.Argument(help="A program.", metavar="FILE.pte")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show what a program has for this delegate: engines, bindings, states and who owns them."""
    from etrt import inspecting

    found = inspecting.inspect(file)
    if as_json:
        sys.stdout.write(json.dumps(inspecting.as_json(found), indent=2) + "\n")
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200  # Into a file or a pipe: nothing has to be folded.
    console.print(f"[bold]{found.path}[/bold]: {_size(found.bytes)}, methods {', '.join(found.methods)}")
    for delegate in found.delegates:
        if delegate.blob is None:
            console.print(f"\n{delegate.method}: backend {delegate.backend}, {_size(delegate.bytes)}")
        else:
            _show(console, found, delegate, delegate.blob)
    if not found.ours():
        console.print(f"\nno delegate of {inspecting.BACKEND}: etrt has nothing to run in this program")


def _show(console: Console, found: Inspected, delegate: Delegate, content: Blob) -> None:
    where = f"named data {content.engine_key[:12]}…" if content.engine_key else "in the blob"
    entry = f", entry {content.engine_entry}" if content.engine_entry else ""
    console.print(
        f"\n[bold]{delegate.method}[/bold]: {delegate.backend}, blob {content.version}, {_size(delegate.bytes)}; "
        f"engine {content.engine_kind}{entry}, {_size(found.engine_bytes(content))}, {where}"
    )
    if content.model_id:
        console.print(f"model id {content.model_id}")
    if content.position:
        count = content.position.count
        many = f"dim {count.dim} of {count.input}" if count.input else f"{count.value}"
        console.print(f"appends at {content.position.input}, {many} positions a run")
    console.print(_bindings(content))
    if content.aliases:
        console.print(_aliases(content))
    if content.states:
        console.print(_states(content))


def _bindings(content: Blob) -> Table:
    table = _table("binding", "", "dtype", "shape")
    for binding in content.bindings:
        shape = str(list(binding.shape)) if binding.dtype or binding.shape else "not known"
        table.add_row(
            binding.name, "input" if binding.is_input else "output", binding.dtype or "not known", shape
        )
    return table


def _aliases(content: Blob) -> Table:
    table = _table("alias", "of input", "kind", "owner", "state")
    for alias in content.aliases:
        table.add_row(alias.output, alias.input, alias.kind, alias.ownership, alias.state or "-")
    return table


def _states(content: Blob) -> Table:
    from etrt.inspecting import state_bytes

    table = _table("state", "owner", "update", "dtype", "shape", "sequence dim", "starts as", "size")
    for state in content.states:
        initial = "stored contents" if state.initial_key else "zeros"
        if state.initial_length:
            initial += f", length {state.initial_length}"
        table.add_row(
            state.id,
            state.ownership,
            state.update if state.output else "read only",
            state.dtype,
            str(list(state.shape)),
            "-" if state.sequence_dim is None else str(state.sequence_dim),
            initial,
            _size(state_bytes(state)),
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _size(count: int) -> str:
    if count < 10_000:
        return f"{count} bytes"
    return f"{count / 1e3:.0f} kB" if count < 1e7 else f"{count / 1e6:.1f} MB"
