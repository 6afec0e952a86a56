"""The ahead-of-time half of the delegate ``TensorRTBackend``."""

from __future__ import annotations

import copy
import hashlib
from typing import final

import torch
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram

from etrt import blob
from etrt.engine_io import make_entry
from etrt.engines import EngineEntry, find_engine_builder
from etrt.errors import ExportError
from etrt.options import Options
from etrt.position import find_position
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
        return TensorRTBackend.preprocess_multimethod({"forward": [edge_program]}, {"forward": [compile_specs]})[
            "forward"
        ][0]

    @classmethod
    def preprocess_multimethod(
        cls, edge_programs: dict[str, list[ExportedProgram]], compile_specs: dict[str, list[list[CompileSpec]]]
    ) -> dict[str, list[PreprocessResult]]:
        """See BackendDetails. Raises ExportError."""
        options = _common_options(compile_specs)
        builder = find_engine_builder(options.engine)
        states = find_states(edge_programs)
        ids = assign_ids(states, options.state_ids)
        entries = {}
        positions = {}
        for method, programs in edge_programs.items():
            for index, program in enumerate(programs):
                name = method if index == 0 else f"{method}.{index}"
                mine = [use for use in states if (use.method, use.partition) == (method, index)]
                inputs = _user_inputs(program)
                positions[method, index] = find_position(program, f"method {method!r}", inputs)
                entries[method, index] = make_entry(name, method, program, mine, ids)
        built = builder.build(list(entries.values()), options)
        key = hashlib.sha256(built.data).hexdigest()
        digest = blob.digest(built.data)
        model_id = options.model_id or default_model_id((ids[u.method, u.name], u.tensor) for u in states)

        results: dict[str, list[PreprocessResult]] = {method: [] for method in edge_programs}
        for (method, index), entry in entries.items():
            store = NamedDataStore()
            store.add_named_data(key, built.data, _ENGINE_ALIGNMENT)
            mine = [use for use in states if (use.method, use.partition) == (method, index)]
            by_id = {ids[method, use.name]: use for use in mine}
            position = positions[method, index]
            header = blob.Blob(
                bindings=[
                    *(blob.Binding(t.name, _dtype(t.dtype), list(t.shape), True) for t in entry.inputs),
                    *(blob.Binding(t.name, _dtype(t.dtype), list(t.shape), False) for t in entry.outputs),
                ],
                aliases=_aliases(entry),
                hardware_compatible=built.hardware_compatible,
                target_platform=built.target_platform,
                engine_kind=builder.kind,
                engine_entry=built.entries[entry.name],
                engine_digest=digest,
                engine_key=key,
                model_id=model_id if entry.states else "",
                states=[
                    blob.State(
                        id=state.id,
                        input=state.input,
                        output=state.output,
                        update="in_place" if state.in_place else "swap",
                        ownership="session",
                        dtype=_dtype(by_id[state.id].tensor.dtype),
                        shape=list(by_id[state.id].tensor.shape),
                        sequence_dim=state.sequence_dim,
                        initial_key=_store_initial(store, by_id[state.id]),
                        initial_length=options.initial_lengths.get(method, {}).get(by_id[state.id].name, 0),
                    )
                    for state in entry.states
                ],
                position=None
                if position is None
                else blob.Position(
                    input=position.input,
                    count=blob.Count(position.count.input, position.count.dim, position.count.value),
                ),
            )
            results[method].append(
                PreprocessResult(
                    processed_bytes=blob.write(header), data_store_output=store.get_named_data_store_output()
                )
            )
        return results


def _common_options(compile_specs: dict[str, list[list[CompileSpec]]]) -> Options:
    found = [Options.from_specs(specs) for lists in compile_specs.values() for specs in lists]
    if any(options != found[0] for options in found):
        raise ExportError("the methods' partitioners have different settings; give all methods one TensorRTPartitioner")
    return found[0]


def _user_inputs(program: ExportedProgram) -> list[torch.fx.Node]:
    names = set(program.graph_signature.user_inputs)
    return [node for node in program.graph.nodes if node.op == "placeholder" and node.name in names]


def _aliases(entry: EngineEntry) -> list[blob.Alias]:
    return [
        blob.Alias(output=s.output, input=s.input, kind="kv_cache_update", ownership="session", state=s.id)
        for s in entry.states
        if s.in_place
    ]


def _store_initial(store: NamedDataStore, use: BufferUse) -> str:
    """The key of the buffer's contents; "" if they are zeros."""
    data = use.tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    if not any(data):
        return ""
    key = "etrt.initial." + hashlib.sha256(data).hexdigest()
    store.add_named_data(key, data, _INITIAL_ALIGNMENT)
    return key


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
