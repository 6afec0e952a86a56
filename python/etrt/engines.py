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

_BUILDERS = {"cpu": "etrt.engine_cpu:CpuEngineBuilder"}


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


@dataclass
class EngineEntry:
    """One partition of one method, as an engine's builder gets it.

    ``program`` is in edge dialect. Its user inputs are ``inputs`` and its user outputs ``outputs``, in that
    order: the delegate's own first, then those of states. It has no mutation left.
    """

    name: str
    method: str
    program: ExportedProgram
    inputs: list[Tensor]
    outputs: list[Tensor]
    states: list[EngineState] = field(default_factory=list)


@dataclass(frozen=True)
class BuiltEngine:
    """Serialized bytes of one engine for all entries."""

    data: bytes
    entries: dict[str, str]
    """Name of an EngineEntry -> what the run time calls it."""
    hardware_compatible: bool = False
    target_platform: str = ""


class EngineBuilder(Protocol):
    """Builds engines of one kind."""

    kind: str
    ownerships: tuple[str, ...]

    def ops_to_not_decompose(
        self, program: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[torch.fx.Node], bool] | None]:
        """As ExecuTorch's Partitioner.ops_to_not_decompose."""
        ...

    def build(self, entries: Sequence[EngineEntry], options: Options) -> BuiltEngine:
        """Builds one engine. May change the entries' programs. Raises ExportError."""
        ...


def find_engine_builder(kind: str) -> EngineBuilder:
    """The builder of ``kind``. Raises ExportError with the kinds there are."""
    if kind not in _BUILDERS:
        raise ExportError(f"engine is {kind!r}; expected one of {', '.join(sorted(_BUILDERS))}")
    module, name = _BUILDERS[kind].split(":")
    builder: EngineBuilder = getattr(importlib.import_module(module), name)()
    return builder
