"""What an engine builder is, and which there are."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch.export import ExportedProgram

from etrt.errors import ExportError
from etrt.options import Options
from etrt.position import PositionInput

_BUILDERS = {
    "cpu": "etrt.engine_cpu:CpuEngineBuilder",
    "tensorrt": "etrt.engine_tensorrt:TensorRTEngineBuilder",
    "tensorrt_rtx": "etrt.engine_tensorrt:TensorRTRTXEngineBuilder",
}


@dataclass(frozen=True)
class Tensor:
    """One binding: a named tensor with -1 for extents known only at run time."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True)
class EngineState:
    """A state as one entry uses it."""

    id: str
    input: str
    output: str
    """Binding names. ``output`` is empty where the entry only reads the state."""
    in_place: bool
    """The output is a kv_cache_update of the input: it may share its memory."""
    sequence_dim: int | None
    ownership: str = "session"
    """"caller": the input is one of the delegate's own, always in place, and its dtype stays."""


@dataclass
class EngineEntry:
    """One partition of one method, as an engine's builder gets it.

    ``program`` is in edge dialect. Its user inputs are ``inputs`` and its user outputs ``outputs``, in that
    order: the delegate's own first, then those of states; among the outputs the caller's caches come before the
    session's states. It has no mutation left.
    """

    name: str
    method: str
    program: ExportedProgram
    inputs: list[Tensor]
    outputs: list[Tensor]
    states: list[EngineState] = field(default_factory=list)
    position: PositionInput | None = None


@dataclass(frozen=True)
class BuiltEngine:
    """Serialized bytes of an engine, and the entries that it runs."""

    data: bytes
    entries: dict[str, str]
    """Name of an EngineEntry -> what the run time calls it."""
    hardware_compatible: bool = False
    target_platform: str = ""


class EngineBuilder(Protocol):
    """Builds engines of one kind."""

    kind: str

    def ops_to_not_decompose(
        self, program: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[torch.fx.Node], bool] | None]:
        """As ExecuTorch's Partitioner.ops_to_not_decompose."""
        ...

    def check_options(self, options: Options) -> None:
        """Raises ExportError if ``options.engine_options`` has what this engine doesn't know."""
        ...

    def build(self, entries: Sequence[EngineEntry], options: Options) -> list[BuiltEngine]:
        """Builds the engines that run ``entries``, each in one of them.

        May change the entries: their programs, the dtypes of states' bindings, and in_place to False where the
        engine can't; but alike in all entries that have the state.

        Raises ExportError.
        """
        ...


def find_engine_builder(kind: str) -> EngineBuilder:
    """The builder of ``kind``. Raises ExportError with the kinds there are."""
    if kind not in _BUILDERS:
        raise ExportError(f"engine is {kind!r}; expected one of {', '.join(sorted(_BUILDERS))}")
    module, name = _BUILDERS[kind].split(":")
    builder: EngineBuilder = getattr(importlib.import_module(module), name)()
    return builder
