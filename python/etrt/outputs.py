"""Outputs that don't share a node.

ExecuTorch can't take a buffer's new value into a delegate if the method also returns it, or if it is an input as it
came. A recurrent model does both: ``self.state.copy_(new); return new``.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument

from etrt.caller import Ownership, is_callers


def separate_outputs(program: ExportedProgram, ownership: Ownership = "session") -> ExportedProgram:
    """The program with a clone() for each output that would share its node; as it was if there is none.

    Args:
        program: in ATen's dialect, before decompositions.
        ownership: who owns the buffers. The caller's may be their own new values.
    """
    if not _may_share(program):
        return program
    program = program.run_decompositions({})
    graph = program.graph
    output = graph.output_node()
    specs = program.graph_signature.output_specs
    results = list(output.args[0])
    buffers = {s.arg.name for s in program.graph_signature.input_specs if s.kind == InputKind.BUFFER}
    taken: set[torch.fx.Node] = set()
    for index, (spec, node) in enumerate(zip(specs, results, strict=True)):
        if not isinstance(node, torch.fx.Node) or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        if spec.kind == OutputKind.BUFFER_MUTATION and is_callers(ownership, str(spec.target)):
            continue
        is_input = node.op == "placeholder" and (
            spec.kind == OutputKind.BUFFER_MUTATION or node.name in buffers
        )
        if node in taken or is_input:
            with graph.inserting_before(output):
                copy = graph.call_function(torch.ops.aten.clone.default, (node,))
            copy.meta["val"] = node.meta["val"].clone()
            results[index] = copy
            spec.arg = TensorArgument(copy.name)
        else:
            taken.add(node)
    output.args = (tuple(results),)
    program.graph_module.recompile()
    return program


def _may_share(program: ExportedProgram) -> bool:
    """Cheap, and true too often rather than too seldom."""
    signature = program.graph_signature
    buffers = {s.arg.name for s in signature.input_specs if s.kind == InputKind.BUFFER}
    returned = set(program.graph.output_node().args[0])
    for node in program.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            if not node.target._schema.is_mutable:
                continue
            operands = [arg for arg in node.args if isinstance(arg, torch.fx.Node)]
            if node in returned or any(arg in returned or arg.op == "placeholder" for arg in operands[1:]):
                return True
    return any(
        node.op == "placeholder" and node.name in buffers
        for node in returned
        if isinstance(node, torch.fx.Node)
    )
