"""Turns a partition into an engine's entry: a function of its inputs and states, without mutation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from etrt.caller import lower_updates
from etrt.engines import EngineEntry, EngineState, Tensor
from etrt.errors import ExportError
from etrt.position import find_position, is_kv_update, kv_arguments
from etrt.states import BufferUse


def input_binding(state_id: str) -> str:
    """Binding through which an engine reads a state. Python identifiers, as other inputs have, never equal it."""
    return f"state.{state_id}"


def output_binding(state_id: str) -> str:
    """Binding through which an engine writes a state."""
    return f"next_state.{state_id}"


def updated_binding(cache: str) -> str:
    """Binding through which an engine writes a cache of the caller, an input of that name."""
    return f"next.{cache}"


def make_entry(
    name: str,
    method: str,
    program: ExportedProgram,
    states: Sequence[BufferUse],
    ids: dict[tuple[str, str], str],
) -> EngineEntry:
    """Makes the states of ``program`` user inputs and outputs, after its own, and the caller's caches outputs.

    Args:
        program: a partition in edge dialect, changed in place.
        states: its states.
        ids: (method, name) -> state id.

    Raises:
        ExportError: an input or output that isn't a tensor; a mutation of something that isn't a state; a position that
            can't be told to the run time.
    """
    updates = lower_updates(program)
    graph = program.graph
    nodes = {node.name: node for node in graph.nodes}
    uses = {use.name: use for use in states}
    ordered = [uses[target] for target in sorted(uses, key=lambda target: ids[method, target])]
    signature = program.graph_signature

    lifted = [s for s in signature.input_specs if s.kind != InputKind.USER_INPUT and s.target not in uses]
    own = [s for s in signature.input_specs if s.kind == InputKind.USER_INPUT]
    state_inputs = [InputSpec(InputKind.USER_INPUT, TensorArgument(use.placeholder), None) for use in ordered]
    _reorder_placeholders(graph, [nodes[s.arg.name] for s in (*lifted, *own, *state_inputs)])

    results = {
        spec.arg.name: node
        for spec, node in zip(signature.output_specs, graph.output_node().args[0], strict=True)
    }
    own_outputs = [s for s in signature.output_specs if s.kind == OutputKind.USER_OUTPUT]
    written = [use for use in ordered if use.mutation is not None]
    kept = [updates[s.arg.name] for s in own if s.arg.name in updates]
    for spec in signature.output_specs:
        if spec.kind != OutputKind.USER_OUTPUT and spec.target not in uses:
            raise ExportError(f"method {method!r}: {spec.kind.name} of {spec.target!r} can't be in an engine")
    outputs = [results[s.arg.name] for s in own_outputs]
    # One that is an output already is there where nothing else keeps it.
    kept_outputs = [node for node in kept if node not in outputs]
    next_states = kept_outputs + [nodes[str(use.mutation)] for use in written]
    graph.output_node().args = (tuple(outputs + next_states),)

    program._graph_signature = ExportGraphSignature(
        input_specs=[*lifted, *own, *state_inputs],
        output_specs=[
            OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None)
            for node in outputs + next_states
        ],
    )
    for use in ordered:
        program.state_dict.pop(use.name, None)
        program.constants.pop(use.name, None)
    program.graph_module.recompile()

    where = f"method {method!r}"
    position = find_position(program, where, [nodes[s.arg.name] for s in own])
    inputs = [_tensor(s.arg.name, nodes[s.arg.name], f"{where}: input {s.arg.name}") for s in own]
    inputs += [
        _tensor(input_binding(ids[method, use.name]), nodes[use.placeholder], f"{where}: state {use.name}")
        for use in ordered
    ]
    bindings = [
        _tensor(
            updated_binding(kv_arguments(node)[0].name) if node in kept else f"output_{i}",
            node,
            f"{where}: output {i}",
        )
        for i, node in enumerate(outputs)
    ]
    bindings += [
        _tensor(updated_binding(kv_arguments(node)[0].name), node, f"{where}: {node.name}")
        for node in kept_outputs
    ]
    bindings += [
        _tensor(output_binding(ids[method, use.name]), nodes[str(use.mutation)], f"{where}: state {use.name}")
        for use in written
    ]
    described = [_state(use, ids[method, use.name], nodes) for use in ordered]
    described += [_caller_state(node) for node in kept]
    return EngineEntry(name, method, program, inputs, bindings, described, position)


def _reorder_placeholders(graph: torch.fx.Graph, order: list[torch.fx.Node]) -> None:
    anchor = next(iter(graph.nodes))
    with graph.inserting_before(anchor):
        for node in order:
            if node is anchor:
                anchor = anchor.next
                continue
            anchor.prepend(node)


def _caller_state(node: torch.fx.Node) -> EngineState:
    cache, _, _, dim = kv_arguments(node)
    return EngineState(f"argument.{cache.name}", cache.name, updated_binding(cache.name), True, dim, "caller")


def _state(use: BufferUse, id_: str, nodes: dict[str, torch.fx.Node]) -> EngineState:
    in_place, sequence_dim = False, None
    if use.mutation is not None:
        result = nodes[use.mutation]
        if is_kv_update(result):
            cache, _, _, dim = kv_arguments(result)
            if cache.name == use.placeholder:
                # Once rows are written, nobody can read the cache as it was.
                in_place = set(cache.users) == {result}
                sequence_dim = dim
    return EngineState(
        id_,
        input_binding(id_),
        "" if use.mutation is None else output_binding(id_),
        in_place,
        sequence_dim,
    )


def _tensor(name: str, node: object, where: str) -> Tensor:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else node
    if not isinstance(value, torch.Tensor):
        raise ExportError(f"{where} is {type(value).__name__}, not a tensor; pass it as a tensor")
    shape = tuple(int(d) if isinstance(d, int) or d.node.expr.is_number else -1 for d in value.shape)
    return Tensor(name, value.dtype, shape)
