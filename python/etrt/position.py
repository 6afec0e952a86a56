"""Which input says where a method appends, and how many positions it appends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from torch.export import ExportedProgram

from etrt.errors import ExportError

KV_OP = "etrt::kv_cache_update"

_SAME_VALUES = {
    "aten::_to_copy",
    "aten::alias_copy",
    "aten::clone",
    "aten::detach_copy",
    "aten::lift_fresh_copy",
    "aten::reshape",
    "aten::squeeze_copy",
    "aten::squeeze",
    "aten::unsqueeze_copy",
    "aten::unsqueeze",
    "aten::view_copy",
    "aten::view",
    "dim_order_ops::_clone_dim_order",
    "dim_order_ops::_to_dim_order_copy",
}


@dataclass(frozen=True)
class Count:
    """``value``, or the extent of dim ``dim`` of ``input``."""

    input: str = ""
    dim: int = 0
    value: int = 1


@dataclass(frozen=True)
class PositionInput:
    """Binding name of the position, and how many positions a run appends."""

    input: str
    count: Count


def overload(node: torch.fx.Node) -> torch._ops.OpOverload | None:
    """The operator that ``node`` calls, in ATen's or the edge dialect; None if it calls none."""
    target = node.target._op if isinstance(node.target, EdgeOpOverload) else node.target
    return target if isinstance(target, torch._ops.OpOverload) else None


def op_name(node: torch.fx.Node) -> str:
    """Like "aten::view_copy", without the overload; "" for what is no operator."""
    target = overload(node)
    return "" if target is None else str(target._schema.name)


def is_kv_update(node: torch.fx.Node) -> bool:
    """The node is a kv_cache_update."""
    return op_name(node) == KV_OP


def argument(node: torch.fx.Node, name: str) -> object:
    """An operator's argument by its schema name, its default if it isn't given."""
    target = overload(node)
    assert target is not None
    if name in node.kwargs:
        return node.kwargs[name]
    for index, declared in enumerate(target._schema.arguments):
        if declared.name == name:
            return node.args[index] if index < len(node.args) else declared.default_value
    raise KeyError(name)


def kv_arguments(node: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node, torch.fx.Node, int]:
    """cache, update, position and sequence_dim of a kv_cache_update."""
    cache, update, position = (argument(node, n) for n in ("cache", "update", "position"))
    assert isinstance(cache, torch.fx.Node) and isinstance(update, torch.fx.Node)
    assert isinstance(position, torch.fx.Node)
    dim = argument(node, "sequence_dim")
    assert isinstance(dim, int)
    return cache, update, position, dim


def source_of_start(node: torch.fx.Node) -> torch.fx.Node | None:
    """The placeholder whose first value (of each row) is the first index in ``node``; None if there is none.

    Follows casts, reshapes, an only element and the sum with an arange from 0.
    """
    while node.op == "call_function":
        name = op_name(node)
        if name in _SAME_VALUES:
            follow = same_values(node)
        elif name in ("aten::select_copy", "aten::select"):
            follow = node.args[0] if _selects_first(node) else None
        elif name == "aten::add":
            follow = added_to_arange(node)
        else:
            follow = None
        if not isinstance(follow, torch.fx.Node):
            return None
        node = follow
    return node if node.op == "placeholder" else None


def same_values(node: torch.fx.Node) -> torch.fx.Node | None:
    """What ``node`` casts or reshapes; None if it does neither."""
    source = node.args[0] if op_name(node) in _SAME_VALUES else None
    return source if isinstance(source, torch.fx.Node) else None


def _selects_first(node: torch.fx.Node) -> bool:
    source = node.args[0]
    assert isinstance(source, torch.fx.Node)
    shape = source.meta["val"].shape
    dim, index = node.args[1], node.args[2]
    return len(shape) == 1 and dim in (0, -1) and (index == 0 or (index == -1 and shape[0] == 1))


def added_to_arange(node: torch.fx.Node) -> torch.fx.Node | None:
    """x of x + arange(T); None if ``node`` is something else."""
    if op_name(node) != "aten::add":
        return None
    first, second = node.args[0], node.args[1]
    if node.kwargs.get("alpha", 1) != 1:
        return None
    if isinstance(first, torch.fx.Node) and isinstance(second, torch.fx.Node):
        if is_arange(second):
            return first
        if is_arange(first):
            return second
    return None


def is_arange(node: torch.fx.Node) -> bool:
    """0, 1, 2, ... along one dim, through casts and reshapes."""
    while (source := same_values(node)) is not None:
        if sum(1 for extent in node.meta["val"].shape if extent != 1) > 1:
            return False
        node = source
    if op_name(node) != "aten::arange":
        return False
    if overload(node) is torch.ops.aten.arange.default:
        return True
    start, step = node.args[0], node.args[2] if len(node.args) > 2 else 1
    return bool(start == 0 and step == 1)


def find_position(
    program: ExportedProgram, where: str, inputs: Sequence[torch.fx.Node]
) -> PositionInput | None:
    """Position and count of a partition's kv_cache_updates; None if it has none.

    Args:
        program: a partition in edge dialect.
        where: what errors call it.
        inputs: the placeholders of the delegate's own inputs.

    Raises:
        ExportError: the position isn't an input, or the updates don't agree on position and count.
    """
    found: PositionInput | None = None
    first: str = ""
    for node in program.graph.nodes:
        if not is_kv_update(node):
            continue
        cache, update, position, dim = kv_arguments(node)
        source = source_of_start(position)
        if source is None or source not in inputs:
            raise ExportError(
                f"{where}: the position of {node.name} (cache {cache.name}) comes from {position.format_node()}; "
                "it has to be an int32 or int64 input of the method, as it is or through casts, reshapes and "
                "position + arange(T), so that the host can check it before a run"
            )
        this = PositionInput(source.name, _count(update, dim, where, node, inputs))
        if found is not None and this != found:
            raise ExportError(
                f"{where}: {first} appends at {_describe(found)}, {node.name} at {_describe(this)}; all caches of a "
                "method append the same number of positions at the same position input"
            )
        found, first = this, node.name
    return found


def _describe(position: PositionInput) -> str:
    count = position.count
    return f"{position.input} ({count.value if not count.input else f'dim {count.dim} of {count.input}'} positions)"


def _count(
    update: torch.fx.Node, dim: int, where: str, node: torch.fx.Node, inputs: Sequence[torch.fx.Node]
) -> Count:
    extent = update.meta["val"].shape[dim]
    if isinstance(extent, int) or extent.node.expr.is_number:
        return Count(value=int(extent))
    for placeholder in inputs:
        value = placeholder.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        for index, candidate in enumerate(value.shape):
            if isinstance(candidate, torch.SymInt) and candidate.node.expr == extent.node.expr:
                return Count(placeholder.name, index)
    raise ExportError(
        f"{where}: {node.name} appends {extent} positions, which is neither a constant nor the extent of an input's "
        "dimension; make it one"
    )
