"""Network definition, optimization profiles and plan."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from etrt.errors import ExportError
from etrt.progress import Progress
from etrt.tensorrt.load import Libraries, gpu_queries_answered
from etrt.tensorrt.profiles import Profile

_CONVERSION_LOG = "torch_tensorrt [TensorRT Conversion Context]"
_Range = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Interface:
    """A network from outside: names and types in the graph's order, extents in each profile."""

    inputs: Sequence[str]
    input_dtypes: Sequence[torch.dtype]
    outputs: Sequence[str]
    output_dtypes: Sequence[torch.dtype]
    profiles: Sequence[Profile]


class Network:
    """A network definition.

    Args:
        libraries: from ``load``.
        graph_module: in ATen, with constants as attributes; changed.
        interface: what it has to look like from outside.

    Raises:
        ExportError: an operator has no converter, or TensorRT refuses the network.
    """

    def __init__(
        self, libraries: Libraries, graph_module: torch.fx.GraphModule, interface: Interface
    ) -> None:
        self._trt = libraries.trt
        self._interface = interface
        with gpu_queries_answered(), _errors() as errors:
            self._interpreter = _interpret(libraries, graph_module, interface, errors)
        self.definition = self._interpreter.ctx.net
        """``INetworkDefinition``."""
        self._check()

    def build(self, capabilities: Sequence[tuple[int, int]], progress: Progress | None = None) -> bytes:
        """The plan.

        Args:
            capabilities: compute capabilities that it has to run on; empty: that of the GPU in this machine.
            progress: told the builder's phases.

        Raises:
            ExportError: TensorRT knows no such capability, or fails; its own words are in the message.
        """
        with gpu_queries_answered():
            config = self._interpreter._populate_trt_builder_config()
        if capabilities:
            config.num_compute_capabilities = len(capabilities)
            for index, capability in enumerate(capabilities):
                config.set_compute_capability(self._capability(capability), index)
        if progress is not None:
            config.progress_monitor = _monitor(self._trt, progress)
        with _errors() as errors:
            plan = self._interpreter.builder.build_serialized_network(self.definition, config)
        if plan is None:
            raise ExportError(f"TensorRT couldn't build the engine: {_why(errors)}")
        return bytes(plan)

    def _capability(self, capability: tuple[int, int]) -> Any:
        known = self._trt.ComputeCapability.__members__
        name = f"SM{capability[0]}{capability[1]}"
        if name not in known:
            listed = ", ".join(f"({n[2:-1]}, {n[-1]})" for n in known if n.startswith("SM"))
            raise ExportError(
                f"compute capability {tuple(capability)} isn't one that {self._trt.__name__} "
                f"{self._trt.__version__} builds for: {listed}"
            )
        return known[name]

    def _check(self) -> None:
        """What the blob will say of the engine has to be so: a wrong name or type would come out on the GPU
        only."""
        net, wanted = self.definition, self._interface
        if self._interpreter.ctx.requires_output_allocator:
            raise ExportError(
                "the shape of an output depends on data; outputs have shapes that follow from the inputs'"
            )
        sides = (
            ("input", [net.get_input(i) for i in range(net.num_inputs)], wanted.inputs, wanted.input_dtypes),
            (
                "output",
                [net.get_output(i) for i in range(net.num_outputs)],
                wanted.outputs,
                wanted.output_dtypes,
            ),
        )
        for side, tensors, names, dtypes in sides:
            found = [(t.name, _torch_dtype(t.dtype)) for t in tensors]
            expected = list(zip(names, dtypes, strict=True))
            if found != expected:
                differing = sorted(set(map(str, found)) ^ set(map(str, expected))) or ["their order"]
                raise ExportError(
                    f"the network's {side}s aren't those of the method; they differ in {', '.join(differing)}"
                )


def lower(program: torch.export.ExportedProgram) -> torch.fx.GraphModule:
    """``program``, in ATen, decomposed as torch_tensorrt's converters want it; constants are attributes.

    torch_tensorrt has to be loaded.
    """
    from torch_tensorrt.dynamo.lowering import get_decompositions

    table = get_decompositions()
    # Decomposed, it becomes an operator that has no converter; whole, it has one.
    table.pop(torch.ops.aten.reshape.default, None)
    with gpu_queries_answered():
        return program.run_decompositions(table).module(check_guards=False)


def _interpret(
    libraries: Libraries, graph_module: torch.fx.GraphModule, interface: Interface, errors: list[str]
) -> Any:
    from torch_tensorrt.dynamo._settings import CompilationSettings
    from torch_tensorrt.dynamo.conversion._TRTInterpreter import TRTInterpreter, UnsupportedOperatorException
    from torch_tensorrt.dynamo.lowering import post_lowering

    settings = CompilationSettings(
        device=libraries.torch_tensorrt.Device(gpu_id=0),
        disable_tf32=True,  # float32 is to mean float32, as it does in PyTorch.
        immutable_weights=True,
    )
    graph_module = post_lowering(graph_module, settings)
    interpreter = TRTInterpreter(
        graph_module,
        list(_inputs(libraries, interface)),
        compilation_settings=settings,
        input_binding_names=interface.inputs,
        output_binding_names=interface.outputs,
    )
    missing = interpreter.validate_conversion()
    if missing:
        raise ExportError(
            f"no converter to TensorRT for {', '.join(sorted(missing))}; keep them out of the exported "
            "methods"
        )
    try:
        interpreter._construct_trt_network_def()
    except (UnsupportedOperatorException, RuntimeError, ValueError, AssertionError) as error:
        raise ExportError(f"the method can't be converted to TensorRT: {error} ({_why(errors)})") from error
    return interpreter


def _inputs(libraries: Libraries, interface: Interface) -> Iterator[Any]:
    profiles = interface.profiles
    # Without it, torch_tensorrt makes up a tensor of each input's size.
    unused = torch.empty(0)
    for index, dtype in enumerate(interface.input_dtypes):
        ranges: list[_Range] = [(p.low[index], p.high[index]) for p in profiles]
        if all(low == high == ranges[0][0] for low, high in ranges):
            yield libraries.torch_tensorrt.Input(shape=ranges[0][0], dtype=dtype, torch_tensor=unused)
        else:
            yield libraries.torch_tensorrt.Input(
                # TensorRT tunes for `opt`; long prompts are where prefill's time goes.
                profiles=[{"min_shape": low, "opt_shape": high, "max_shape": high} for low, high in ranges],
                dtype=dtype,
                torch_tensor=unused,
            )


def _torch_dtype(dtype: Any) -> torch.dtype:
    from torch_tensorrt import _enums

    result: torch.dtype = _enums.dtype._from(dtype).to(torch.dtype)
    return result


def _why(errors: Sequence[str]) -> str:
    return "; ".join(errors) or "TensorRT gave no reason"


@contextmanager
def _errors() -> Iterator[list[str]]:
    """Collects what TensorRT logs as errors instead of printing it.

    It also logs, each time it looks for a GPU, that there is no driver, and that names of layers are taken,
    which mean nothing here.
    """
    found: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR:
            return True
        text = record.getMessage()
        if "catchCudaError" not in text and "setName" not in text:
            found.append(text)
        return False

    logger = logging.getLogger(_CONVERSION_LOG)
    logger.addFilter(keep)
    try:
        yield found
    finally:
        logger.removeFilter(keep)


def _monitor(trt: Any, progress: Progress) -> Any:
    class Monitor(trt.IProgressMonitor):  # type: ignore[misc, name-defined]
        """Nested phases as one fraction: each phase is one step of its parent."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self._phases: dict[str, list[int]] = {}
            self._done = 0.0

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            del parent_phase
            self._phases[phase_name] = [0, max(num_steps, 1)]
            self._tell(phase_name)

        def step_complete(self, phase_name: str, step: int) -> bool:
            self._phases[phase_name][0] = step + 1
            self._tell(phase_name)
            return True

        def phase_finish(self, phase_name: str) -> None:
            self._phases.pop(phase_name, None)

        def _tell(self, phase: str) -> None:
            done, part = 0.0, 1.0
            for steps, total in self._phases.values():
                done += part * steps / total
                part /= total
            # The builder goes through some phases more than once; progress doesn't go back for that.
            self._done = max(self._done, min(done, 1.0))
            progress(phase, self._done)

    return Monitor()
