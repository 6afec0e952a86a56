"""Engines that are TensorRT plans, by torch_tensorrt's converters.

Entries that compute the same on ranges of extents of their own share one engine: a network with an
optimization profile for each. An entry is called by the decimal index of its profile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch.export import ExportedProgram

from etrt.engines import BuiltEngine, EngineEntry, Tensor
from etrt.errors import ExportError
from etrt.options import Options
from etrt.progress import listener, report
from etrt.tensorrt import kv_update
from etrt.tensorrt.aten import to_aten
from etrt.tensorrt.load import load
from etrt.tensorrt.network import Interface, Network, lower
from etrt.tensorrt.precision import to_half
from etrt.tensorrt.profiles import Networks, Profile, profile_of

_LOG = logging.getLogger("etrt")
_PRECISIONS = ("fp32", "fp16")


@dataclass(frozen=True)
class Settings:
    """What ``Options.engine_options`` may say to these engines."""

    compute_capabilities: tuple[tuple[int, int], ...] = ()
    """Of the GPUs that the plan has to run on, like (8, 9); empty: the GPU in this machine."""
    precision: str = "fp32"
    """"fp32": the model's own types. "fp16": float32 is computed in float16 where that is safe, and caches
    that are updated in place hold it; see etrt.tensorrt.precision."""

    @staticmethod
    def of(options: Options) -> Settings:
        """Raises ExportError for an option or value that isn't known."""
        given = dict(options.engine_options)
        capabilities = given.pop("compute_capabilities", None) or ()
        precision = given.pop("precision", None) or "fp32"
        if given:
            raise ExportError(
                f"engine {options.engine!r} has no option {sorted(given)[0]!r}; it has compute_capabilities "
                "and precision"
            )
        if precision not in _PRECISIONS:
            raise ExportError(f"precision is {precision!r}; expected one of {', '.join(_PRECISIONS)}")
        try:
            pairs = tuple((int(major), int(minor)) for major, minor in capabilities)
        except (TypeError, ValueError):
            raise ExportError(
                f"compute_capabilities is {capabilities!r}; expected pairs like [(8, 6), (8, 9)]"
            ) from None
        if len(set(pairs)) != len(pairs):
            raise ExportError(f"compute_capabilities {list(pairs)} names one twice")
        return Settings(pairs, precision)


@dataclass
class Part:
    """Entries that share a network, and what that network is made from."""

    entries: list[EngineEntry]
    graph_module: torch.fx.GraphModule
    """In ATen, with constants as attributes and kv_cache_update as its converter takes it."""
    profiles: list[Profile]

    @property
    def leader(self) -> EngineEntry:
        """The entry whose program the network computes."""
        return self.entries[0]

    @property
    def interface(self) -> Interface:
        """The network from outside."""
        inputs, outputs = self.leader.inputs, self.leader.outputs
        return Interface(
            [t.name for t in inputs],
            [t.dtype for t in inputs],
            [t.name for t in outputs],
            [t.dtype for t in outputs],
            self.profiles,
        )


def prepare(entries: Sequence[EngineEntry], precision: str) -> list[Part]:
    """Groups entries and brings their programs into the form that is converted. torch_tensorrt has to be
    loaded.

    Updates the entries: states that TensorRT can't update in place swap, and with precision "fp16" those that
    it can are float16.

    Raises:
        ExportError: an extent has no upper bound, or an operator no counterpart in ATen.
    """
    parts = []
    for group in Networks().group(entries):
        names = {entry.name for entry in group}
        profiles = dict.fromkeys(profile_of(entry) for entry in entries if entry.name in names)
        parts.append(Part(group, lower(to_aten(group[0].program)), list(profiles)))
    _settle_states(parts)
    if precision == "fp16":
        halves = _halve_states(parts)
        for part in parts:
            to_half(part.graph_module, part.interface.inputs, part.interface.outputs, halves)
    return parts


class _TensorRTBuilder:
    """What the engines for TensorRT and TensorRT-RTX have in common."""

    kind: str

    def ops_to_not_decompose(
        self, program: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[torch.fx.Node], bool] | None]:
        """Operators that have a layer of their own."""
        del program
        aten = torch.ops.aten
        return [
            aten.linear.default,
            aten.matmul.default,
            aten.scaled_dot_product_attention.default,
        ], _keep_whole

    def check_options(self, options: Options) -> None:
        """Raises ExportError for an option or value that isn't known, or that this machine can't serve."""
        self._check(Settings.of(options))

    def build(self, entries: Sequence[EngineEntry], options: Options) -> list[BuiltEngine]:
        """An engine for each group of entries that differ in ranges of extents alone.

        Updates the entries: what could not be in place swaps; with precision "fp16", caches that are updated
        in place are float16.

        Raises:
            ExportError: the packages are missing, an option is wrong, an operator has no converter, or
            TensorRT fails.
        """
        settings = Settings.of(options)
        self._check(settings)
        libraries = load(self.kind)
        report("reading the methods", 0.0)
        parts = prepare(entries, settings.precision)
        built = []
        for index, part in enumerate(parts):
            report("converting to TensorRT", (index + 0.1) / len(parts))
            network = Network(libraries, part.graph_module, part.interface)
            plan = network.build(settings.compute_capabilities, _step(index, len(parts)))
            names = {entry.name: str(part.profiles.index(profile_of(entry))) for entry in part.entries}
            built.append(BuiltEngine(plan, names, target_platform=_platform()))
        return built

    def _check(self, settings: Settings) -> None:
        raise NotImplementedError


class TensorRTRTXEngineBuilder(_TensorRTBuilder):
    """Plans for TensorRT-RTX. They can be built on a machine without a GPU, for compute capabilities that are
    given."""

    kind = "tensorrt_rtx"

    def _check(self, settings: Settings) -> None:
        if not settings.compute_capabilities and not torch.cuda.is_available():
            raise ExportError(
                "engine 'tensorrt_rtx' needs compute_capabilities on a machine without a GPU: those of the "
                "GPUs that will run it, like compute_capabilities=[(8, 6), (8, 9), (12, 0)]"
            )


class TensorRTEngineBuilder(_TensorRTBuilder):
    """Plans for TensorRT, for the GPU in this machine."""

    kind = "tensorrt"

    def _check(self, settings: Settings) -> None:
        load(self.kind)
        if not torch.cuda.is_available():
            raise ExportError(
                "engine 'tensorrt' builds for the GPU in the machine, and there is none that PyTorch can "
                "use; export there, or use engine='tensorrt_rtx' with compute_capabilities"
            )
        if settings.compute_capabilities:
            raise ExportError(
                "engine 'tensorrt' builds for the GPU in the machine: leave compute_capabilities out, or "
                "use engine='tensorrt_rtx'"
            )


def _keep_whole(node: torch.fx.Node) -> bool:
    if node.target != torch.ops.aten.scaled_dot_product_attention.default:
        return True
    query, key, value = (node.args[i].meta["val"] for i in range(3))  # type: ignore[union-attr]
    named = dict(zip(("attn_mask", "dropout_p", "is_causal"), node.args[3:], strict=False)) | node.kwargs
    # TensorRT aligns its causal mask to the last query and PyTorch to the first: the same for as many queries
    # as keys alone.
    causal_alike = (
        not named.get("is_causal", False)
        or query.shape[-2] is key.shape[-2]
        or (isinstance(query.shape[-2], int) and query.shape[-2] == key.shape[-2])
    )
    return (
        causal_alike
        and query.dim() == 4
        and key.shape == value.shape
        and not named.get("dropout_p", 0.0)
        and not (named.get("is_causal", False) and named.get("attn_mask") is not None)
    )


def _settle_states(parts: Sequence[Part]) -> None:
    """Decides which states are in place, alike for all parts, and lowers their updates."""
    refused: dict[str, str] = {}
    for part in parts:
        possible = kv_update.candidates(part.graph_module, part.interface.outputs)
        for state in part.leader.states:
            if state.in_place and state.output and state.output not in possible:
                if state.ownership == "caller":
                    raise ExportError(
                        f"method {part.leader.method!r}: TensorRT can't update cache {state.id!r} of the caller in "
                        "place: that takes a cache [batch, heads, capacity, head_dim] of fp32, fp16 or bf16 that the "
                        "method doesn't read apart from its update"
                    )
                refused[state.id] = part.leader.method
    for id_, method in refused.items():
        _LOG.warning(
            "state %r is written whole: TensorRT updates in place only a cache [batch, heads, capacity, "
            "head_dim] of fp32, fp16 or bf16 that method %r doesn't read apart from its update",
            id_,
            method,
        )
    for part in parts:
        for entry in part.entries:
            entry.states = [
                replace(s, in_place=s.in_place and (s.ownership == "caller" or s.id not in refused))
                for s in entry.states
            ]
        in_place = [s.output for s in part.leader.states if s.in_place and s.output]
        kv_update.lower(part.graph_module, part.interface.outputs, in_place)


def _halve_states(parts: Sequence[Part]) -> set[str]:
    """Makes float32 states of the session that are in place float16; returns their bindings."""
    halves: set[str] = set()
    for part in parts:
        states = [s for s in part.leader.states if s.in_place and s.ownership == "session"]
        names = {name for s in states for name in (s.input, s.output)}
        tensors = [*part.leader.inputs, *part.leader.outputs]
        halves |= {t.name for t in tensors if t.name in names and t.dtype == torch.float32}
    for part in parts:
        for entry in part.entries:
            entry.inputs = [_halved(t, halves) for t in entry.inputs]
            entry.outputs = [_halved(t, halves) for t in entry.outputs]
    return halves


def _halved(tensor: Tensor, halves: set[str]) -> Tensor:
    return replace(tensor, dtype=torch.float16) if tensor.name in halves else tensor


def _step(index: int, count: int) -> Callable[[str, float], None] | None:
    # TensorRT reports from a thread of its own, which doesn't inherit the listener.
    tell = listener()
    if tell is None:
        return None
    return lambda phase, done: tell(
        f"building the TensorRT engine: {phase}", (index + 0.2 + 0.8 * done) / count
    )


def _platform() -> str:
    """As torch_tensorrt spells it in a blob: a plan runs on the system that it was built on."""
    from torch_tensorrt import Platform

    return str(Platform.current_platform()._to_serialized_rt_platform())
