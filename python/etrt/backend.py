"""The ahead-of-time half of the delegate ``TensorRTBackend``."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import final

import torch
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram

from etrt import blob
from etrt.engine_io import make_entry
from etrt.engines import BuiltEngine, EngineEntry, EngineState, Tensor, find_engine_builder
from etrt.errors import ExportError
from etrt.options import Options
from etrt.patterns import rewrite_updates
from etrt.reconcile import reconcile
from etrt.states import BufferUse, assign_ids, default_model_id, find_states

_ENGINE_ALIGNMENT = 4096  # A page, so that the run time can map the engine by itself.
_INITIAL_ALIGNMENT = 64


@final
class TensorRTBackend(BackendDetails):
    """Builds one engine for all partitions of all methods, and a blob for each partition."""

    @classmethod
    def copy_exported_program_for_preprocess(
        cls, edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> ExportedProgram:
        """A copy whose tensors are the original's: that two methods hold one tensor is how they share a state."""
        del compile_specs
        tensors = [*edge_program.state_dict.values(), *edge_program.constants.values()]
        return copy.deepcopy(edge_program, {id(t): t for t in tensors if isinstance(t, torch.Tensor)})

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """One method with one partition, called ``forward``."""
        return TensorRTBackend.preprocess_multimethod(
            {"forward": [edge_program]}, {"forward": [compile_specs]}
        )["forward"][0]

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """See BackendDetails. Raises ExportError."""
        options = _common_options(compile_specs)
        builder = find_engine_builder(options.engine)
        states = find_states(edge_programs)
        ids = assign_ids(states, options.state_ids)
        entries: dict[tuple[str, int], EngineEntry] = {}
        for method, programs in edge_programs.items():
            for index, program in enumerate(programs):
                name = method if index == 0 else f"{method}.{index}"
                mine = [use for use in states if (use.method, use.partition) == (method, index)]
                mine = rewrite_updates(program, mine, f"method {method!r}")
                entries[method, index] = make_entry(name, method, program, mine, ids)
        reconcile(list(entries.values()))
        built = builder.build(list(entries.values()), options)
        model_id = options.model_id or default_model_id(
            (ids[use.method, use.name], use.tensor) for use in states
        )
        engine_of = {
            name: StoredEngine.of(builder.kind, engine) for engine in built for name in engine.entries
        }

        results: dict[str, list[PreprocessResult]] = {method: [] for method in edge_programs}
        for (method, index), entry in entries.items():
            uses = {
                ids[method, use.name]: use for use in states if (use.method, use.partition) == (method, index)
            }
            engine = engine_of[entry.name]
            store = NamedDataStore()
            engine.add_to(store)
            header = blob.Blob(
                bindings=[_binding(t, True) for t in entry.inputs]
                + [_binding(t, False) for t in entry.outputs],
                aliases=_aliases(entry),
                hardware_compatible=engine.built.hardware_compatible,
                target_platform=engine.built.target_platform,
                engine_kind=builder.kind,
                engine_entry=engine.built.entries[entry.name],
                engine_digest=engine.digest,
                engine_key=engine.key,
                model_id=model_id if uses else "",
                states=[
                    _state(entry, state, uses.get(state.id), options.initial_lengths.get(method, {}), store)
                    for state in entry.states
                ],
                position=None
                if entry.position is None
                else blob.Position(entry.position.input, blob.Count(**asdict(entry.position.count))),
            )
            results[method].append(
                PreprocessResult(
                    processed_bytes=blob.write(header), data_store_output=store.get_named_data_store_output()
                )
            )
        return results


@dataclass(frozen=True)
class StoredEngine:
    """An engine and how blobs point at it."""

    kind: str
    built: BuiltEngine
    key: str
    digest: str

    @staticmethod
    def of(kind: str, built: BuiltEngine) -> StoredEngine:
        return StoredEngine(kind, built, hashlib.sha256(built.data).hexdigest(), blob.digest(built.data))

    def add_to(self, store: NamedDataStore) -> None:
        store.add_named_data(self.key, self.built.data, _ENGINE_ALIGNMENT)
        # The run time asks for this small entry to learn how the program's data is loaded.
        store.add_named_data(self.key + ".info", json.dumps({"engine": self.kind}).encode())


def _common_options(compile_specs: dict[str, list[list[CompileSpec]]]) -> Options:
    found = [Options.from_specs(specs) for lists in compile_specs.values() for specs in lists]
    if any(options != found[0] for options in found):
        raise ExportError(
            "the methods' partitioners have different settings; give all methods one TensorRTPartitioner"
        )
    return found[0]


def _binding(tensor: Tensor, is_input: bool) -> blob.Binding:
    return blob.Binding(tensor.name, _dtype(tensor.dtype), list(tensor.shape), is_input)


def _aliases(entry: EngineEntry) -> list[blob.Alias]:
    return [
        blob.Alias(
            s.output, s.input, "kv_cache_update", s.ownership, s.id if s.ownership == "session" else ""
        )
        for s in entry.states
        if s.in_place and s.output
    ]


def _state(
    entry: EngineEntry,
    state: EngineState,
    use: BufferUse | None,
    lengths: Mapping[str, int],
    store: NamedDataStore,
) -> blob.State:
    """``use``: None of the caller's caches, whose contents and length are the caller's business."""
    # The builder may have chosen another dtype than the buffer has.
    binding = next(t for t in entry.inputs if t.name == state.input)
    assert (use is not None) == (state.ownership == "session")
    length = 0 if use is None else lengths.get(use.name, 0)
    if state.sequence_dim is not None and not 0 <= length <= binding.shape[state.sequence_dim]:
        raise ExportError(
            f"initial length of state {state.id!r} is {length}; its capacity is {binding.shape[state.sequence_dim]}"
        )
    return blob.State(
        id=state.id,
        input=state.input,
        output=state.output,
        update="in_place" if state.in_place else "swap",
        ownership=state.ownership,
        dtype=_dtype(binding.dtype),
        shape=list(binding.shape),
        sequence_dim=state.sequence_dim,
        initial_key="" if use is None else store_initial(store, use.tensor.detach().to(binding.dtype)),
        initial_length=0 if state.sequence_dim is None else length,
    )


def store_initial(store: NamedDataStore, contents: torch.Tensor) -> str:
    """The key under which ``contents`` are stored; "" if they are zeros."""
    if not contents.any():
        return ""
    data = contents.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    key = "etrt.initial." + hashlib.sha256(data).hexdigest()
    store.add_named_data(key, data, _INITIAL_ALIGNMENT)
    return key


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
