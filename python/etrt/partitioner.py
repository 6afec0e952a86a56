"""Decides what goes to the delegate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data, tag_mutated_buffer
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

import etrt.ops  # noqa: F401  (registers the operator)
from etrt.backend import TensorRTBackend
from etrt.caller import Ownership, callers_buffers, check_ownership, keep_above
from etrt.engines import find_engine_builder
from etrt.errors import ExportError
from etrt.options import Options
from etrt.outputs import separate_outputs
from etrt.states import refuse_strided_buffers

_TAG = "etrt"


class TensorRTPartitioner(Partitioner):
    """Gives a whole method to ``TensorRTBackend``, its states included.

    For ``to_edge_transform_and_lower``; one instance may serve all methods::

        to_edge_transform_and_lower({"prefill": p, "decode": d}, partitioner=[TensorRTPartitioner()])

    Args:
        engine: kind of engine to build: "cpu", "tensorrt" or "tensorrt_rtx".
        ownership: who owns the states' memory. "session": they are no arguments, and a run finds them in the session
            that is selected. "caller": buffers stay above the delegate, in the program's own memory. Or a dict:
            fully qualified name of a buffer -> one of these. Inputs that a method changes are the caller's anyway.
        model_id: namespace of the state ids; None makes one from the states.
        state_ids: method -> fully qualified name of a buffer -> state id.
        initial_lengths: method -> fully qualified name of a buffer -> positions valid at the start.
        engine_options: settings of the engine's builder.

    Raises:
        ExportError: an engine, ownership or engine option that isn't known.
    """

    def __init__(
        self,
        engine: str = "cpu",
        ownership: Ownership = "session",
        model_id: str | None = None,
        state_ids: Mapping[str, Mapping[str, str]] | None = None,
        initial_lengths: Mapping[str, Mapping[str, int]] | None = None,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._builder = find_engine_builder(engine)
        check_ownership(ownership)
        self._options = Options(
            engine, ownership, model_id, state_ids or {}, initial_lengths or {}, engine_options or {}
        )
        self._builder.check_options(self._options)
        self._specs = self._options.to_specs()

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tags every operator, constant and mutated buffer.

        Raises:
            ExportError: the method has control flow, or returns a state itself.
        """
        _refuse_returned_states(exported_program)
        for node in exported_program.graph.nodes:
            if node.op == "call_function":
                if isinstance(node.target, torch._ops.HigherOrderOperator):
                    raise ExportError(
                        f"{node.name}: control flow ({node.target}) can't be in an engine; keep it out of the "
                        "exported methods"
                    )
                node.meta["delegation_tag"] = _TAG
        tag_constant_data(exported_program)
        tag_mutated_buffer(exported_program)
        above = callers_buffers(exported_program, self._options.ownership)
        for node in exported_program.graph.nodes:
            if node.op == "placeholder" and node.name in above:
                node.meta.pop("delegation_tag", None)
                # ExecuTorch drops a buffer's contents unless told to keep them; its memory then holds anything.
                node.meta["et_init_buffer"] = True
        spec = DelegationSpec(TensorRTBackend.__name__, self._specs)
        return PartitionResult(tagged_exported_program=exported_program, partition_tags={_TAG: spec})

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """Leaves the caller's caches where they are; gives every output of the method and every new value of the
        session's states a node of its own, by copying.

        Raises:
            ExportError: a state isn't contiguous; see also ``etrt.caller.keep_above``.
        """
        refuse_strided_buffers(exported_program)
        return separate_outputs(
            keep_above(exported_program, self._options.ownership), self._options.ownership
        )

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[torch.fx.Node], bool] | None]:
        """What the engine wants whole."""
        return self._builder.ops_to_not_decompose(ep)


def _refuse_returned_states(program: ExportedProgram) -> None:
    """ExecuTorch can't take a buffer's mutation into a delegate that also returns it."""
    specs = program.graph_signature.output_specs
    mutations = {s.arg.name: s.target for s in specs if s.kind == OutputKind.BUFFER_MUTATION}
    for index, spec in enumerate(s for s in specs if s.kind == OutputKind.USER_OUTPUT):
        name = getattr(spec.arg, "name", None)
        if name in mutations:
            raise ExportError(
                f"output {index} is the state {mutations[name]!r} itself; a method returns copies of states: "
                f"return a clone() of it"
            )
