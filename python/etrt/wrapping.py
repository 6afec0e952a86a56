"""A program around a TensorRT plan that somebody else built.

One ExecuTorch method for each optimization profile. A session owns the states, and by default they swap: the
engine reads one buffer and writes another. That an input and an output share memory is safe where the engine
says so (alias kind ``kv_cache_update``), or where one knows that it reads each element before it writes it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.exir.passes import MemoryPlanningPass

from etrt import blob
from etrt.backend import StoredEngine, TensorRTBackend, store_initial
from etrt.engines import BuiltEngine
from etrt.errors import ExportError
from etrt.exporter import Exported

Extent = int | str
"""A number, or the name of an extent that has a range in each profile."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENGINES = ("tensorrt", "tensorrt_rtx")
_UPDATES = ("swap", "in_place")
_KINDS = ("user", "kv_cache_update")


@dataclass(frozen=True)
class PlanBinding:
    """An input or output of the plan, by the name that the plan has for it."""

    name: str
    dtype: str
    """As PyTorch spells it: "float16", "int32", ..."""
    shape: tuple[Extent, ...]
    """Outermost first."""
    is_input: bool

    @staticmethod
    def parse(text: str) -> PlanBinding:
        """From "in:NAME:DTYPE:EXTENTS" or "out:NAME:DTYPE:EXTENTS", like "in:update:float16:1,2,n,8"; no
        extents: a scalar.

        Raises:
            ExportError: it isn't of that form.
        """
        direction, _, rest = text.partition(":")
        name, *tail = rest.rsplit(":", 2)
        if direction not in ("in", "out") or len(tail) != 2:
            raise ExportError(
                f"binding {text!r}: expected in:NAME:DTYPE:EXTENTS or out:NAME:DTYPE:EXTENTS, like "
                "in:update:float16:1,2,n,8"
            )
        extents = [e.strip() for e in tail[1].split(",")] if tail[1].strip() else []
        shape = tuple(int(e) if e.lstrip("-").isdigit() else e for e in extents)
        return PlanBinding(name, tail[0], shape, direction == "in")


@dataclass(frozen=True)
class PlanState:
    """A state of the session: an input and the output that has its next value."""

    input: str
    sequence_dim: int | None = None
    """The dim along which a run appends; None if the state is no sequence."""
    update: str = ""
    """"swap" or "in_place"; "" is what the description says."""
    initial: Sequence[float] | None = None
    """Its elements in a new session, row by row; None: zeros."""


@dataclass(frozen=True)
class PlanProfile:
    """An optimization profile, and the ranges that its named extents have."""

    index: int = 0
    extents: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Name -> least and greatest."""


@dataclass(frozen=True)
class PlanDescription:
    """What a plan's user has to say of it. A bindings file is this as a JSON object, ``bindings`` alone
    required."""

    bindings: Sequence[PlanBinding]
    aliases: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Output -> (the input whose next value it is, "user" or "kv_cache_update")."""
    states: Mapping[str, PlanState] = field(default_factory=dict)
    """State id -> state. Aliases of inputs that are no states are the caller's."""
    position: str | None = None
    """The int32 or int64 input that says where a run appends: a scalar, one for each batch row, or one for
    each new position."""
    count: tuple[str, int] | int | None = None
    """How many positions a run appends: extent (input, dim), or a number. None: the named extent, if there is
    one alone."""
    profiles: Mapping[str, PlanProfile] = field(default_factory=lambda: {"forward": PlanProfile()})
    """Method -> profile."""
    model_id: str = ""
    """Namespace of the state ids; "" makes one from the plan."""
    update: str = ""
    """"swap" or "in_place", of aliases of kind "user"; "" is "swap"."""
    engine: str = "tensorrt"
    """"tensorrt" or "tensorrt_rtx"."""

    @staticmethod
    def of(data: Mapping[str, Any]) -> PlanDescription:
        """From this class's fields as JSON has them, or as they are here.

        Example::

            {
              "bindings": [
                {"name": "update", "dtype": "float16", "shape": [1, 2, "n", 8], "is_input": true},
                "out:y:float16:1,2,n,8"
              ],
              "aliases": {"cache_out": "cache"},
              "states": {"k": {"input": "cache", "sequence_dim": 2}},
              "position": "pos",
              "profiles": {
                "prefill": {"index": 0, "extents": {"n": [1, 32]}},
                "decode": {"index": 1, "extents": {"n": 1}}
              }
            }

        Raises:
            ExportError: it isn't of that form.
        """
        known = {f.name for f in fields(PlanDescription)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise ExportError(f"{unknown[0]!r} is none of {', '.join(sorted(known))}")
        if "bindings" not in data:
            raise ExportError("bindings is missing: which inputs and outputs the plan has")
        values = dict(data)
        for key, convert in _CONVERSIONS.items():
            if values.get(key) is not None:
                try:
                    values[key] = convert(values[key])
                except (TypeError, ValueError, KeyError, AttributeError) as error:
                    raise ExportError(f"{key}: {values[key]!r} isn't as expected ({error!r})") from None
        return PlanDescription(**{key: value for key, value in values.items() if value is not None})

    @staticmethod
    def read(path: str | Path) -> PlanDescription:
        """From a bindings file, JSON as ``of`` has it. Raises ExportError."""
        try:
            data = json.loads(Path(path).read_text())
            if not isinstance(data, dict):
                raise ExportError(
                    f"it is a JSON {type(data).__name__}, expected an object with the key bindings"
                )
            return PlanDescription.of(data)
        except OSError as error:
            raise ExportError(f"bindings file {path}: {error.strerror}") from None
        except json.JSONDecodeError as error:
            raise ExportError(f"bindings file {path} is no JSON: {error}") from None
        except ExportError as error:
            raise ExportError(f"bindings file {path}: {error}") from None


def _binding(value: Any) -> PlanBinding:
    if isinstance(value, str):
        return PlanBinding.parse(value)
    if isinstance(value, PlanBinding):
        return value
    return PlanBinding(
        str(value["name"]), str(value["dtype"]), tuple(value["shape"]), bool(value["is_input"])
    )


def _alias(value: Any) -> tuple[str, str]:
    if isinstance(value, Mapping):
        return str(value["input"]), str(value["kind"])
    return (value, "user") if isinstance(value, str) else (value[0], value[1])


def _state(value: Any) -> PlanState:
    if isinstance(value, Mapping):
        return PlanState(**value)
    return PlanState(value) if isinstance(value, str) else value


def _profile(value: Any) -> PlanProfile:
    if isinstance(value, int):
        return PlanProfile(value)
    if isinstance(value, PlanProfile):
        return value
    ranges = value.get("extents", {})
    return PlanProfile(
        int(value["index"]), {n: (r, r) if isinstance(r, int) else (r[0], r[1]) for n, r in ranges.items()}
    )


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "bindings": lambda value: [_binding(b) for b in value],
    "aliases": lambda value: {output: _alias(a) for output, a in value.items()},
    "states": lambda value: {id_: _state(s) for id_, s in value.items()},
    "profiles": lambda value: {method: _profile(p) for method, p in value.items()},
    "count": lambda value: value if isinstance(value, int) else (str(value[0]), int(value[1])),
}


def wrap(
    plan: str | Path, bindings: str | Path | Sequence[Any] | PlanDescription, **settings: Any
) -> Exported:
    """A program for a ready plan, with a method for each profile.

    A method's inputs are the plan's that aren't states, in the order of the bindings, and its outputs those
    that no alias names. A caller-owned cache is an input that the method changes.

    Args:
        plan: the file.
        bindings: a bindings file (``PlanDescription.read``), or the bindings.
        settings: the other fields of PlanDescription, as ``PlanDescription.of`` takes them; they go before
            the file's.

    Raises:
        ExportError: the plan can't be read, or the description lacks something or contradicts itself.
    """
    data = read_plan(plan)
    description = describe(bindings, **settings)
    _Checks(description).run()
    update = description.update or "swap"
    engine = StoredEngine.of(description.engine, BuiltEngine(data, {}))
    methods = {}
    for method, profile in description.profiles.items():
        store = NamedDataStore()
        engine.add_to(store)
        try:
            container = blob.write(_blob(description, profile, engine, update, store))
        except blob.BlobError as error:
            raise ExportError(f"method {method!r}: {error}") from None
        methods[method] = _program(description, profile, container, store)
    config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False))
    return Exported(to_edge(methods).to_executorch(config))


def describe(bindings: str | Path | Sequence[Any] | PlanDescription, **settings: Any) -> PlanDescription:
    """The description that ``wrap`` makes of the same arguments. Raises ExportError."""
    if isinstance(bindings, PlanDescription):
        description = bindings
    elif isinstance(bindings, (str, Path)):
        description = PlanDescription.read(bindings)
    else:
        description = PlanDescription.of({"bindings": bindings})
    given = {key: value for key, value in settings.items() if value is not None}
    if not given:
        return description
    return PlanDescription.of(
        {**{f.name: getattr(description, f.name) for f in fields(description)}, **given}
    )


def read_plan(path: str | Path) -> bytes:
    """The bytes of a plan. Raises ExportError."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ExportError(f"plan {path}: {error.strerror}") from None
    if len(data) < 32:
        raise ExportError(f"plan {path} has {len(data)} bytes; a TensorRT plan has more")
    return data


class _Checks:
    """What the container doesn't check: the description's own terms."""

    def __init__(self, description: PlanDescription) -> None:
        self._description = description
        self._bindings = {b.name: b for b in description.bindings}

    def run(self) -> None:
        """Raises ExportError for the first thing that is missing or contradicts another."""
        d = self._description
        _one_of("engine", d.engine, _ENGINES)
        _one_of("update", d.update or "swap", _UPDATES)
        for binding in d.bindings:
            self._check_binding(binding)
        for output, (source, kind) in d.aliases.items():
            self._find(f"alias {output}={source}", output, is_input=False)
            self._find(f"alias {output}={source}", source, is_input=True)
            _one_of(f"alias {output}={source}: kind", kind, _KINDS)
        self._check_states()
        self._check_position()
        self._check_profiles()
        if not _own(d, is_input=False):
            raise ExportError(
                "every output is the next value of an input, so that a method would return nothing; leave "
                "one free"
            )

    def _check_binding(self, binding: PlanBinding) -> None:
        _one_of(f"binding {binding.name!r}: dtype", binding.dtype, tuple(blob.DTYPES))
        for extent in binding.shape:
            if isinstance(extent, str) and not _NAME.fullmatch(extent):
                raise ExportError(
                    f"binding {binding.name!r}: extent {extent!r} is neither a number nor a name"
                )
            if isinstance(extent, int) and extent < 0:
                raise ExportError(
                    f"binding {binding.name!r}: extent {extent} is negative; give an extent that isn't "
                    "fixed a name, like n, and each profile its range, like n=1..32"
                )

    def _check_states(self) -> None:
        d = self._description
        owned: dict[str, str] = {}
        for id_, state in d.states.items():
            binding = self._find(f"state {id_}={state.input}", state.input, is_input=True)
            if state.input in owned:
                raise ExportError(
                    f"input {state.input!r} is state {owned[state.input]!r} and {id_!r}; give it one id"
                )
            owned[state.input] = id_
            if not any(source == state.input for source, _ in d.aliases.values()):
                raise ExportError(
                    f"state {id_!r}: no output has the next value of {state.input!r}; say which with an "
                    f"alias, OUTPUT={state.input}"
                )
            named = [e for e in binding.shape if isinstance(e, str)]
            if named:
                raise ExportError(
                    f"state {id_!r}: extent {named[0]!r} of {state.input!r} varies; a state has one size"
                )
            _one_of(f"state {id_!r}: update", state.update or "swap", _UPDATES)
            elements = math.prod(e for e in binding.shape if isinstance(e, int))
            if state.initial is not None and len(state.initial) != elements:
                raise ExportError(
                    f"state {id_!r}: initial has {len(state.initial)} elements and {state.input!r} {elements}"
                )
            if state.sequence_dim is not None and not 0 <= state.sequence_dim < len(binding.shape):
                raise ExportError(
                    f"state {id_!r}: sequence_dim is {state.sequence_dim}; {state.input!r} has dims 0 to "
                    f"{len(binding.shape) - 1}"
                )
        for output, (source, kind) in d.aliases.items():
            if source not in owned and kind == "user" and d.update != "in_place":
                raise ExportError(
                    f"alias {output}={source}: without a state, the caller owns {source!r}, which then is "
                    f"written in place; make it a state (ID={source}), or say update='in_place' if the "
                    "engine reads each element before it writes it"
                )

    def _check_position(self) -> None:
        d = self._description
        sequences = [id_ for id_, state in d.states.items() if state.sequence_dim is not None]
        if d.position is None:
            if sequences:
                raise ExportError(
                    f"state {sequences[0]!r} has a sequence dim; say which input is the position"
                )
            return
        self._find("position", d.position, is_input=True)
        if not sequences:
            raise ExportError(f"position is {d.position!r}, but no state has a sequence dim, as in k=cache@2")
        if isinstance(d.count, tuple):
            binding = self._find("count", d.count[0], is_input=True)
            if not 0 <= d.count[1] < len(binding.shape):
                raise ExportError(
                    f"count: {d.count[0]!r} has no dim {d.count[1]}; its shape is {list(binding.shape)}"
                )
        elif d.count is None and len(_named_extents(d)) != 1:
            raise ExportError(
                "count is missing: say how many positions a run appends, as INPUT.DIM or a number (it is "
                f"the named extent where there is one; here there are {len(_named_extents(d))})"
            )

    def _check_profiles(self) -> None:
        d = self._description
        if not d.profiles:
            raise ExportError("profiles is empty; name at least one, like forward=0")
        wanted = _named_extents(d)
        for method, profile in d.profiles.items():
            if profile.index < 0:
                raise ExportError(f"profile of method {method!r} is {profile.index}; profiles count from 0")
            missing, unknown = sorted(wanted - set(profile.extents)), sorted(set(profile.extents) - wanted)
            if missing:
                raise ExportError(
                    f"profile {method}={profile.index}: no range for extent {missing[0]!r}; add "
                    f"{missing[0]}=1..N"
                )
            if unknown:
                raise ExportError(
                    f"profile {method}={profile.index}: no binding has an extent {unknown[0]!r}"
                )
            for name, (low, high) in profile.extents.items():
                if not 1 <= low <= high:
                    raise ExportError(
                        f"profile {method}={profile.index}: {name}={low}..{high} is no range of extents"
                    )
        arguments = {e for b in _own(d, is_input=True) for e in b.shape}
        for binding in _own(d, is_input=False):
            for extent in binding.shape:
                if isinstance(extent, str) and extent not in arguments:
                    raise ExportError(
                        f"output {binding.name!r}: extent {extent!r} is in no input of the method, so that "
                        "its size can't be known"
                    )

    def _find(self, what: str, name: str, *, is_input: bool) -> PlanBinding:
        if name not in self._bindings:
            raise ExportError(f"{what}: {name!r} is none of the bindings {', '.join(self._bindings)}")
        if self._bindings[name].is_input != is_input:
            wrong, right = ("an output", "an input") if is_input else ("an input", "an output")
            raise ExportError(f"{what}: {name!r} is {wrong}; expected {right}")
        return self._bindings[name]


def _one_of(what: str, value: str, words: Sequence[str]) -> None:
    if value not in words:
        raise ExportError(f"{what} is {value!r}; expected one of {', '.join(words)}")


def _named_extents(description: PlanDescription) -> set[str]:
    return {e for b in description.bindings for e in b.shape if isinstance(e, str)}


def _own(description: PlanDescription, *, is_input: bool) -> list[PlanBinding]:
    """The method's own inputs or outputs."""
    hidden = {s.input for s in description.states.values()} if is_input else set(description.aliases)
    return [b for b in description.bindings if b.is_input == is_input and b.name not in hidden]


def _blob(
    description: PlanDescription,
    profile: PlanProfile,
    engine: StoredEngine,
    update: str,
    store: NamedDataStore,
) -> blob.Blob:
    outputs = {source: (output, kind) for output, (source, kind) in description.aliases.items()}
    by_name = {b.name: b for b in description.bindings}
    ids = {state.input: id_ for id_, state in description.states.items()}
    updates = {
        source: "in_place"
        if kind == "kv_cache_update" or source not in ids
        else description.states[ids[source]].update or update
        for source, (_, kind) in outputs.items()
    }
    return blob.Blob(
        bindings=[
            blob.Binding(b.name, b.dtype, _shape(b, profile), b.is_input) for b in description.bindings
        ],
        aliases=[
            blob.Alias(output, source, kind, "session" if source in ids else "caller", ids.get(source, ""))
            for source, (output, kind) in outputs.items()
            if updates[source] == "in_place"
        ],
        engine_kind=engine.kind,
        engine_entry=str(profile.index),
        engine_digest=engine.digest,
        engine_key=engine.key,
        model_id=(description.model_id or f"plan-{engine.key[:16]}") if ids else "",
        states=[
            blob.State(
                id=id_,
                input=state.input,
                output=outputs[state.input][0],
                update=updates[state.input],
                ownership="session",
                dtype=by_name[state.input].dtype,
                shape=_shape(by_name[state.input], profile),
                sequence_dim=state.sequence_dim,
                initial_key=_initial_key(by_name[state.input], state, store),
            )
            for id_, state in description.states.items()
        ],
        position=None
        if description.position is None
        else blob.Position(description.position, _count(description, profile)),
    )


def _initial_key(binding: PlanBinding, state: PlanState, store: NamedDataStore) -> str:
    if state.initial is None:
        return ""
    return store_initial(store, torch.tensor(state.initial, dtype=getattr(torch, binding.dtype)))


def _shape(binding: PlanBinding, profile: PlanProfile) -> list[int]:
    return [_extent(extent, profile) for extent in binding.shape]


def _extent(extent: Extent, profile: PlanProfile) -> int:
    """-1 where it varies."""
    if isinstance(extent, int):
        return extent
    low, high = profile.extents[extent]
    return low if low == high else -1


def _count(description: PlanDescription, profile: PlanProfile) -> blob.Count:
    if isinstance(description.count, int):
        return blob.Count(value=description.count)
    if description.count is None:
        (name,) = _named_extents(description)
        binding, dim = next(
            (b, b.shape.index(name)) for b in _own(description, is_input=True) if name in b.shape
        )
    else:
        binding = next(b for b in description.bindings if b.name == description.count[0])
        dim = description.count[1]
    extent = _extent(binding.shape[dim], profile)
    return blob.Count(binding.name, dim) if extent == -1 else blob.Count(value=extent)


class _Placeholder(torch.nn.Module):
    """Has the shapes and types of a method; computes nothing."""

    def __init__(self, description: PlanDescription, profile: PlanProfile) -> None:
        super().__init__()
        inputs = _own(description, is_input=True)
        self._outputs = []
        for binding in _own(description, is_input=False):
            sources = [
                extent
                if _extent(extent, profile) != -1
                else next((i, b.shape.index(extent)) for i, b in enumerate(inputs) if extent in b.shape)
                for extent in binding.shape
            ]
            self._outputs.append((getattr(torch, binding.dtype), sources))
        self._profile = profile

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = []
        for dtype, sources in self._outputs:
            shape = [
                inputs[s[0]].shape[s[1]] if isinstance(s, tuple) else _extent(s, self._profile)
                for s in sources
            ]
            results.append(torch.zeros(shape, dtype=dtype))
        return tuple(results)


class _Delegated(torch.nn.Module):
    """Calls a delegate and nothing else."""

    def __init__(self, delegate: LoweredBackendModule) -> None:
        super().__init__()
        self.delegate = delegate

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.delegate(*inputs)


def _program(
    description: PlanDescription, profile: PlanProfile, container: bytes, store: NamedDataStore
) -> torch.export.ExportedProgram:
    """A method of one delegate, whose container is ``container``."""
    inputs = _own(description, is_input=True)
    examples = []
    dims: dict[str, Any] = {}
    shapes: list[dict[int, Any]] = []
    for binding in inputs:
        extents = []
        shapes.append({})
        for dim, extent in enumerate(binding.shape):
            if _extent(extent, profile) == -1:
                low, high = profile.extents[str(extent)]
                shapes[-1][dim] = dims.setdefault(
                    str(extent), torch.export.Dim(str(extent), min=low, max=high)
                )
                extents.append(high)
            else:
                extents.append(_extent(extent, profile))
        examples.append(torch.zeros(extents, dtype=getattr(torch, binding.dtype)))
    arguments = {"args": tuple(examples), "dynamic_shapes": (tuple(shapes),)}
    shell = torch.export.export(_Placeholder(description, profile), **arguments)
    delegate = LoweredBackendModule(
        shell, TensorRTBackend.__name__, container, [], store.get_named_data_store_output()
    )
    return torch.export.export(_Delegated(delegate), **arguments)
