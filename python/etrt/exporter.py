"""From PyTorch modules to a program with etrt delegates."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from executorch.exir import ExecutorchBackendConfig, ExecutorchProgramManager, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from torch import nn
from torch.export import ExportedProgram

from etrt.caller import Ownership
from etrt.errors import ExportError
from etrt.kv_cache import KVCache
from etrt.partitioner import TensorRTPartitioner
from etrt.progress import Progress, section

Method = nn.Module | ExportedProgram | tuple[nn.Module, Sequence[Any]]


class Exported:
    """A program for ExecuTorch, ready to be written."""

    def __init__(self, program: ExecutorchProgramManager) -> None:
        self.program = program

    @property
    def buffer(self) -> bytes:
        """The bytes of the .pte file."""
        return bytes(self.program.buffer)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the .pte file: the whole of it, or, if an OSError is raised, nothing."""
        target = Path(path)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                self.program.write_to_file(file)
            # mkstemp's files are for their owner alone.
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
        return target


def export(
    methods: Mapping[str, Method] | Method,
    example_inputs: Mapping[str, Sequence[Any]] | Sequence[Any] | None = None,
    dynamic_shapes: Mapping[str, Any] | Any = None,
    *,
    engine: str = "cpu",
    ownership: Ownership = "session",
    model_id: str | None = None,
    state_ids: Mapping[str, Mapping[str, str]] | None = None,
    initial_lengths: Mapping[str, Mapping[str, int]] | None = None,
    constant_methods: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **engine_options: Any,
) -> Exported:
    """Exports methods that share states and weights into one program.

    Args:
        methods: name -> module, (module, example inputs), or what torch.export made of it. The same module may serve
            several methods. A single one is called "forward".
        example_inputs: name -> example inputs, for modules that come without; or those of the single one.
        dynamic_shapes: name -> ``dynamic_shapes`` of torch.export; or that of the single one.
        engine, ownership, model_id, state_ids, initial_lengths: see TensorRTPartitioner. ``KVCache.initial_length``
            is used where ``initial_lengths`` says nothing.
        constant_methods: name -> value of methods that return a constant.
        progress: called with what is being done, and the part of the whole that is done, from 0 to 1.
        engine_options: what the engine's builder takes, like ``compute_capabilities`` for "tensorrt_rtx".

    Raises:
        ExportError: an argument isn't one of those above, or a method can't be in an engine as it is.
    """
    tell = progress or (lambda stage, fraction: None)
    if not isinstance(methods, Mapping):
        methods = {"forward": methods}
        example_inputs = None if example_inputs is None else {"forward": example_inputs}  # type: ignore[dict-item]
        dynamic_shapes = None if dynamic_shapes is None else {"forward": dynamic_shapes}
    if not methods:
        raise ExportError("methods is empty; name at least one, like {'forward': module}")
    examples = _by_method("example_inputs", example_inputs, methods)
    shapes = _by_method("dynamic_shapes", dynamic_shapes, methods)
    clash = sorted(set(constant_methods or {}) & set(methods))
    if clash:
        raise ExportError(
            f"constant_methods and methods both have {clash[0]!r}; give one of them another name"
        )

    lengths = {name: dict(by_buffer) for name, by_buffer in (initial_lengths or {}).items()}
    for name, method in methods.items():
        module = method[0] if isinstance(method, tuple) else method
        if isinstance(module, nn.Module):
            lengths[name] = _cache_lengths(module) | lengths.get(name, {})
    partitioner = TensorRTPartitioner(engine, ownership, model_id, state_ids, lengths, engine_options)

    programs = {}
    for index, (name, method) in enumerate(methods.items()):
        tell(f"tracing {name}", 0.3 * index / len(methods))
        programs[name] = _trace(name, method, examples.get(name), shapes.get(name))
    tell("lowering", 0.3)
    constants = dict(constant_methods) if constant_methods else None
    with section(progress, 0.4, 0.9):
        edge = to_edge_transform_and_lower(programs, partitioner=[partitioner], constant_methods=constants)
    tell("writing the program", 0.9)
    config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False))
    exported = Exported(edge.to_executorch(config))
    tell("done", 1.0)
    return exported


def _by_method(what: str, given: Any, methods: Mapping[str, Method]) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ExportError(
            f"{what} is a {type(given).__name__}; with several methods it is a dict: method -> {what}"
        )
    unknown = sorted(set(given) - set(methods))
    if unknown:
        raise ExportError(
            f"{what} has {unknown[0]!r}, which is no method; the methods are {', '.join(methods)}"
        )
    return dict(given)


def _trace(name: str, method: Method, examples: Sequence[Any] | None, shapes: Any) -> ExportedProgram:
    if isinstance(method, ExportedProgram):
        return method
    if isinstance(method, tuple):
        if len(method) != 2:
            raise ExportError(
                f"method {name!r} is a tuple of {len(method)}; expected (module, example inputs)"
            )
        method, examples = method
    if not isinstance(method, nn.Module):
        raise ExportError(
            f"method {name!r} is a {type(method).__name__}; expected a torch.nn.Module, (module, example inputs), or "
            "an ExportedProgram"
        )
    if examples is None:
        raise ExportError(f"method {name!r} has no example inputs; give them in example_inputs[{name!r}]")
    if isinstance(examples, torch.Tensor) or not isinstance(examples, Sequence):
        raise ExportError(
            f"example_inputs[{name!r}] is a {type(examples).__name__}; expected a tuple with one entry for each "
            "argument"
        )
    try:
        with torch.no_grad():
            return torch.export.export(method, tuple(examples), dynamic_shapes=shapes)
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(f"method {name!r} can't be traced by torch.export: {error}") from error


def _cache_lengths(module: nn.Module) -> dict[str, int]:
    lengths = {}
    for prefix, cache in module.named_modules():
        if isinstance(cache, KVCache) and cache.initial_length:
            for buffer in ("k", "v"):
                lengths[f"{prefix}.{buffer}" if prefix else buffer] = cache.initial_length
    return lengths
