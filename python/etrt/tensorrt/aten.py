"""A partition in edge dialect, back in ATen: what torch_tensorrt's converters take."""

from __future__ import annotations

import copy
from typing import Any

import torch
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from etrt.errors import ExportError

_DIM_ORDER_OPS = {
    "dim_order_ops::_to_dim_order_copy": torch.ops.aten._to_copy.default,
    "dim_order_ops::_clone_dim_order": torch.ops.aten.clone.default,
}
_RENAMED = {"aten::view_copy": torch.ops.aten.reshape.default}
"""A view in edge dialect is of contiguous data, whatever the strides would have been in ATen."""


def to_aten(program: ExportedProgram) -> ExportedProgram:
    """A copy of ``program`` in ATen. Tensors are shared, not copied.

    Raises:
        ExportError: an operator that has no ATen counterpart.
    """
    tensors = [*program.state_dict.values(), *program.constants.values()]
    graph_module = copy.deepcopy(program.graph_module, {id(t): t for t in tensors})
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, EdgeOpOverload):
            node.target, node.kwargs = _aten_call(node)
    return ExportedProgram(
        root=graph_module,
        graph=graph_module.graph,
        graph_signature=copy.deepcopy(program.graph_signature),
        state_dict=dict(program.state_dict),
        range_constraints=dict(program.range_constraints),
        module_call_graph=[ModuleCallEntry("", _call_signature(program))],
        constants=dict(program.constants),
        verifiers=[torch._export.verifier.Verifier],
    )


def _aten_call(node: torch.fx.Node) -> tuple[Any, dict[str, Any]]:
    overload = node.target._op
    name = overload._schema.name
    kwargs = dict(node.kwargs)
    if name in _DIM_ORDER_OPS:
        kwargs.pop("dim_order", None)
        return _DIM_ORDER_OPS[name], kwargs
    if name in _RENAMED:
        return _RENAMED[name], kwargs
    namespace, _, base = name.partition("::")
    if namespace == "dim_order_ops":
        raise ExportError(f"{node.name}: {name} has no counterpart in ATen; export with _skip_dim_order=True")
    if namespace == "aten" and base.endswith("_copy") and hasattr(torch.ops.aten, base.removesuffix("_copy")):
        packet = getattr(torch.ops.aten, base.removesuffix("_copy"))
        if overload._overloadname in packet.overloads():
            return getattr(packet, overload._overloadname), kwargs
    return overload, kwargs


def _call_signature(program: ExportedProgram) -> ModuleCallSignature:
    inputs = sum(s.kind == InputKind.USER_INPUT for s in program.graph_signature.input_specs)
    outputs = len(program.graph_signature.output_specs)
    return ModuleCallSignature(
        inputs=[],
        outputs=[],
        in_spec=pytree.tree_flatten((tuple(range(inputs)), {}))[1],
        out_spec=pytree.tree_flatten(list(range(outputs)))[1],
    )
