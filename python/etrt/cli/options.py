"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Weights = Literal["fp32", "int8"]
EngineKind = Literal["cpu", "tensorrt", "tensorrt_rtx"]

WeightsOption = Annotated[Weights, typer.Option(help="How linear layers' weights are stored.")]
CapacityOption = Annotated[int, typer.Option(min=2, help="Positions of a conversation.")]
PrefillOption = Annotated[int, typer.Option(min=2, help="Most tokens that one run of prefill takes.")]
ModelOption = Annotated[
    Path | None, typer.Option(help="A program of `etrt export`; without it one is made and kept.")
]
