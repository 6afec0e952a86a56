"""Which inputs and buffers a method changes, before PyTorch has made that explicit."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from etrt.position import overload


def changed_placeholders(program: ExportedProgram) -> set[str]:
    """Names of the placeholders that ``program`` changes, itself or through views.

    Args:
        program: in ATen's dialect, with or without operators that change their arguments.
    """
    signature = program.graph_signature
    buffers = {name: placeholder for placeholder, name in signature.inputs_to_buffers.items()}
    changed = set()
    for spec in signature.output_specs:
        if spec.kind == OutputKind.USER_INPUT_MUTATION:
            changed.add(str(spec.target))
        elif spec.kind == OutputKind.BUFFER_MUTATION:
            changed.add(buffers[str(spec.target)])
    for node in program.graph.nodes:
        target = overload(node)
        if target is None or not target._schema.is_mutable:
            continue
        written = node.args[0]
        while isinstance(written, torch.fx.Node) and written.op == "call_function" and written.args:
            written = written.args[0]  # Of a view.
        if isinstance(written, torch.fx.Node) and written.op == "placeholder":
            changed.add(written.name)
    return changed
