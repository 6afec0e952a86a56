"""Ranges of extents, and which entries are one network that differs in them alone.

A TensorRT engine has one network and several optimization profiles, each with ranges of its own for the
extents of the inputs. So prefill (1 to N tokens) and decode (1 token) of one model need its weights once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from etrt.engines import EngineEntry
from etrt.errors import ExportError
from etrt.tensorrt.graphs import op_name

_UNBOUNDED = 1 << 31
_NO_OPS_AT_EQUAL_SHAPE = {
    "aten::_to_copy",
    "aten::alias_copy",
    "aten::clone",
    "aten::expand_copy",
    "aten::permute_copy",
    "aten::slice_copy",
    "aten::view_copy",
    "dim_order_ops::_clone_dim_order",
    "dim_order_ops::_to_dim_order_copy",
}
"""These give their input where it has the result's shape and dtype (a permutation: if it is the identity).
torch.export leaves some of them out where an extent is known to make them so."""

Values = dict[sympy.Symbol, int]


@dataclass(frozen=True)
class Profile:
    """Least and greatest extents of every input, in the inputs' order, outermost first."""

    low: tuple[tuple[int, ...], ...]
    high: tuple[tuple[int, ...], ...]


def profile_of(entry: EngineEntry) -> Profile:
    """The extents that ``entry`` was exported for.

    Raises:
        ExportError: an extent has no upper bound.
    """
    low, high = [], []
    for node in _user_inputs(entry.program):
        where = f"method {entry.method!r}: input {node.name}"
        extents = [_range(entry.program, extent, where) for extent in node.meta["val"].shape]
        low.append(tuple(least for least, _ in extents))
        high.append(tuple(greatest for _, greatest in extents))
    return Profile(tuple(low), tuple(high))


def _range(program: ExportedProgram, extent: int | torch.SymInt, where: str) -> tuple[int, int]:
    expression = _expression(extent)
    least, greatest = {}, {}
    for symbol in expression.free_symbols:
        bounds = program.range_constraints.get(symbol)
        if bounds is None or not bounds.upper.is_number or not bounds.upper < _UNBOUNDED:
            raise ExportError(f"{where} has an extent ({extent}) without an upper bound: give its Dim a max")
        # torch.export sets an extent of 1 apart and starts at 2 the ranges that were asked to start at 1. The
        # program is the same, so the profile allows 1.
        low = int(bounds.lower)
        least[symbol], greatest[symbol] = (1 if low == 2 else max(low, 1)), int(bounds.upper)
    ends = int(expression.subs(least)), int(expression.subs(greatest))
    return min(ends), max(ends)


class Networks:
    """Compares entries, remembering what it has read of their constants."""

    def __init__(self) -> None:
        self._digests: dict[object, str] = {}

    def group(self, entries: Sequence[EngineEntry]) -> list[list[EngineEntry]]:
        """Entries that one network can serve; the first of each group has that network."""
        by_generality = sorted(entries, key=lambda e: -len(e.program.range_constraints))
        groups: list[list[EngineEntry]] = []
        for entry in by_generality:
            for group in groups:
                if self.same(group[0], entry):
                    group.append(entry)
                    break
            else:
                groups.append([entry])
        return groups

    def same(self, general: EngineEntry, other: EngineEntry) -> bool:
        """``other`` computes what ``general`` does, for extents in other's range, on bindings of the same
        names.

        Compared structurally, at the least, the middle and the greatest extents of ``other``; so True can be
        relied on, and False may mean that one computation was written in two ways.
        """
        if _names(general) != _names(other):
            return False
        for theirs in _points(other.program):
            mine = _matching(general.program, other.program, theirs)
            if mine is None or self._results(general.program, mine) != self._results(other.program, theirs):
                return False
        return True

    def _results(self, program: ExportedProgram, at: Values) -> list[object]:
        """For each output a name that says how it is computed where extents are as ``at``."""
        signature = program.graph_signature
        lifted = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        constants = {**program.constants, **program.state_dict}
        names: dict[torch.fx.Node, str] = {}
        index = 0
        for node in program.graph.nodes:
            if node.op == "placeholder" and node.name in lifted:
                names[node] = self._digest(constants[lifted[node.name]])
            elif node.op == "placeholder":
                names[node] = f"input {index}"
                index += 1
            elif node.op == "call_function":
                names[node] = _name(node, names, at)
        results: list[object] = _argument(program.graph.output_node().args[0], names, at)
        return results

    def _digest(self, tensor: torch.Tensor) -> str:
        tensor = tensor.detach()
        layout = (tuple(tensor.shape), tensor.stride(), tensor.dtype)
        identity = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), *layout)
        if identity not in self._digests:
            data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
            self._digests[identity] = (
                f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha256(data).hexdigest()}"
            )
        return self._digests[identity]


def _names(entry: EngineEntry) -> tuple[list[str], list[str]]:
    return [t.name for t in entry.inputs], [t.name for t in entry.outputs]


def _points(program: ExportedProgram) -> list[Values]:
    ranges = {s: (max(1, int(r.lower)), int(r.upper)) for s, r in program.range_constraints.items()}
    return [
        {s: low for s, (low, _) in ranges.items()},
        {s: (low + high) // 2 for s, (low, high) in ranges.items()},
        {s: high for s, (_, high) in ranges.items()},
    ][: 3 if ranges else 1]


def _matching(general: ExportedProgram, other: ExportedProgram, theirs: Values) -> Values | None:
    """What general's symbols have to be for its inputs to have other's extents at ``theirs``; None if nothing
    fits."""
    mine: Values = {}
    wanted = []
    for a, b in zip(_user_inputs(general), _user_inputs(other), strict=True):
        x, y = a.meta["val"], b.meta["val"]
        if x.dtype != y.dtype or x.dim() != y.dim():
            return None
        for e, f in zip(x.shape, y.shape, strict=True):
            expression, value = _expression(e), int(_expression(f).subs(theirs))
            if expression.is_symbol:
                mine.setdefault(expression, value)
            wanted.append((expression, value))
    return mine if all(expression.subs(mine) == value for expression, value in wanted) else None


def _name(node: torch.fx.Node, names: dict[torch.fx.Node, str], at: Values) -> str:
    value = node.meta.get("val")
    if isinstance(value, (int, torch.SymInt)):
        return str(_expression(value).subs(at))
    if _is_no_op(node, at):
        return names[node.args[0]]  # type: ignore[index]
    call = (str(node.target), _argument(node.args, names, at), _argument(dict(node.kwargs), names, at))
    return hashlib.sha256(repr(call).encode()).hexdigest()


def _is_no_op(node: torch.fx.Node, at: Values) -> bool:
    if op_name(node) not in _NO_OPS_AT_EQUAL_SHAPE:
        return False
    source, result = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]
    if source.dtype != result.dtype or _shape(source, at) != _shape(result, at):
        return False
    return op_name(node) != "aten::permute_copy" or list(node.args[1]) == sorted(node.args[1])  # type: ignore


def _shape(tensor: torch.Tensor, at: Values) -> list[sympy.Expr]:
    return [_expression(extent).subs(at) for extent in tensor.shape]


def _argument(value: Any, names: dict[torch.fx.Node, str], at: Values) -> Any:
    if isinstance(value, torch.fx.Node):
        return names[value]
    if isinstance(value, (list, tuple)):
        return [_argument(v, names, at) for v in value]
    if isinstance(value, dict):
        return sorted((k, _argument(v, names, at)) for k, v in value.items())
    return str(value)


def _expression(extent: int | torch.SymInt) -> sympy.Expr:
    return sympy.Integer(extent) if isinstance(extent, int) else extent.node.expr


def _user_inputs(program: ExportedProgram) -> list[torch.fx.Node]:
    names = set(program.graph_signature.user_inputs)
    return [node for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
