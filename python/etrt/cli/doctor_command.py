"""``etrt doctor``."""

from __future__ import annotations

import typer
from rich.console import Console


def doctor_command() -> None:
    """Say what is installed, what is missing and what to do; fails if `etrt demo` can't run."""
    from etrt.cli.checks import all_checks

    console = Console(highlight=False, soft_wrap=True)
    missing = 0
    for check in all_checks():
        if check.good:
            mark = "[green]ok[/green]     "
        elif check.required:
            mark, missing = "[red]missing[/red]", missing + 1
        else:
            mark = "[yellow]absent[/yellow] "
        console.print(f"{mark}  {check.name}: {check.found}")
        if not check.good and check.advice:
            console.print(f"           -> {check.advice}")
    if missing:
        console.print(f"[red]{missing} needed part(s) missing[/red]: etrt demo can't run yet")
        raise typer.Exit(1)
    console.print("[green]etrt demo can run[/green]")
