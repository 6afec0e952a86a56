"""``etrt wrap``: see etrt.wrapping."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etrt.errors import ExportError


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
    from etrt.wrap_flags import check_in_place, describe_by_flags
    from etrt.wrapping import wrap

    try:
        description = describe_by_flags(
            plan,
            bindings=bindings,
            binding=binding or [],
            alias=alias or [],
            state=state or [],
            position=position,
            count=count,
            profile=profile or [],
            model_id=model_id,
            engine=engine,
            in_place=in_place,
        )
        if check:
            typer.echo(check_in_place(plan, description))
        path = wrap(plan, description).save(output)
    except (ExportError, OSError) as error:
        typer.echo(f"etrt wrap: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"wrote {path}, {path.stat().st_size} bytes")
