"""Finds appends to plain buffers and makes them kv_cache_updates.

Recognised, for a buffer ``cache`` whose new value is the result and that nothing else reads beforehand:

* ``cache.index_copy_(d, index, update)``, ``cache[:, :, index] = update``,
  ``cache.index_put_((None, None, index), update)``
* ``cache[arange(B), :, index] = update`` with a start for each batch row
* ``cache[:, :, p : p + T] = update``, ``cache.narrow(2, p, T).copy_(update)`` with ``p = position.item()``
* the functional forms of these, assigned to the buffer

``index`` is position + arange(T), or an input of the method. Such an input is taken for consecutive; the run
time refuses any other value. What isn't recognised stays as it is: an engine then writes the whole buffer anew.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch
from executorch.exir.dialects._ops import ops as exir_ops
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram

from etrt.ops import batch_rows
from etrt.position import (
    added_to_arange,
    argument,
    is_arange,
    is_kv_update,
    op_name,
    same_values,
    source_of_start,
)
from etrt.states import BufferUse

_LOG = logging.getLogger("etrt")
_VALUE = "val"


class _NotRecognised(Exception):
    """Why an update isn't an append; shown to the user."""


def rewrite_updates(program: ExportedProgram, states: Collection[BufferUse], where: str) -> list[BufferUse]:
    """Rewrites the updates of ``states`` in a partition, in edge or ATen dialect, in place.

    Warns where something looks like an append to a cache but isn't recognised.

    Args:
        program: the partition.
        states: its states.
        where: what warnings call it.

    Returns:
        ``states``, with the nodes that make the new values now.
    """
    graph = program.graph
    nodes = {node.name: node for node in graph.nodes}
    uses = list(states)
    for index, use in enumerate(uses):
        if use.mutation is None or is_kv_update(nodes[use.mutation]):
            continue
        result, cache = nodes[use.mutation], nodes[use.placeholder]
        recognise = _RECOGNISERS.get(op_name(result))
        if recognise is None:
            continue
        try:
            if result.args[0] is not cache:
                raise _NotRecognised("it doesn't update the buffer as it was before the run")
            new = recognise(result, cache)
            result.replace_all_uses_with(new, propagate_meta=False)
            graph.erase_node(result)
            uses[index] = replace(use, mutation=new.name)
        except _NotRecognised as reason:
            _LOG.warning(
                "%s: state %r is updated by %s, which isn't recognised as an append at a position: %s. Each run "
                "writes all of it anew; etrt.KVCache is updated in place",
                where, use.name, op_name(result).replace("::", "."), reason,
            )  # fmt: skip
    graph.eliminate_dead_code()
    program.graph_module.recompile()
    return uses


def _index_put(node: torch.fx.Node, cache: torch.fx.Node) -> torch.fx.Node:
    if argument(node, "accumulate"):
        raise _NotRecognised("it accumulates")
    indices = argument(node, "indices")
    values = argument(node, "values")
    assert isinstance(indices, (list, tuple)) and isinstance(values, torch.fx.Node)
    given = [(dim, index) for dim, index in enumerate(indices) if isinstance(index, torch.fx.Node)]
    shape = cache.meta[_VALUE].shape
    if len(given) == 2 and given[0][0] == 0 and is_arange(given[0][1]):
        dim, index = given[1]
        if tuple(given[0][1].meta[_VALUE].shape) == (shape[0],) == tuple(index.meta[_VALUE].shape):
            update = _cast(_unsqueeze(values, dim, node), cache, node)
            return _update(node, cache, update, index, dim)
    if len(given) != 1:
        raise _NotRecognised(f"it has indices in {len(given)} dims")
    dim, index = given[0]
    return _append_at_index(node, cache, values, index, dim)


def _index_copy(node: torch.fx.Node, cache: torch.fx.Node) -> torch.fx.Node:
    dim, index, source = (argument(node, name) for name in ("dim", "index", "source"))
    assert isinstance(dim, int) and isinstance(index, torch.fx.Node) and isinstance(source, torch.fx.Node)
    return _append_at_index(node, cache, source, index, dim % cache.meta[_VALUE].dim())


def _append_at_index(
    node: torch.fx.Node, cache: torch.fx.Node, update: torch.fx.Node, index: torch.fx.Node, dim: int
) -> torch.fx.Node:
    value: torch.Tensor = index.meta[_VALUE]
    if value.dtype not in (torch.int32, torch.int64):
        raise _NotRecognised(f"its index is {value.dtype}")
    if value.dim() > 1:
        raise _NotRecognised(f"its index has {value.dim()} dims")
    if value.dim() == 0:
        update = _unsqueeze(update, dim, node)
    position = index
    if value.dim() == 1 and value.shape[0] != 1:
        start = _start_of(index)
        if start is not None:
            position = start
        elif batch_rows(cache.meta[_VALUE], dim) > 1:
            raise _NotRecognised(
                f"its index has an entry for each new row, but there are {batch_rows(cache.meta[_VALUE], dim)} batch "
                "rows; use position + arange(T) with a position of one element"
            )
    return _update(node, cache, _cast(_fit(update, cache, dim, node), cache, node), position, dim)


def _start_of(index: torch.fx.Node) -> torch.fx.Node | None:
    """The only element that ``index`` adds an arange to; None if ``index`` isn't made so."""
    while (start := added_to_arange(index)) is None:
        following = same_values(index)
        if following is None:
            return None
        index = following
    value = start.meta[_VALUE]
    if value.numel() != 1:
        return None
    while value.dim() > 1:
        following = same_values(start)
        if following is None:
            return None
        start, value = following, following.meta[_VALUE]
    return start


def _slice_scatter(node: torch.fx.Node, cache: torch.fx.Node) -> torch.fx.Node:
    source, dim, start, step = (argument(node, name) for name in ("src", "dim", "start", "step"))
    assert isinstance(source, torch.fx.Node) and isinstance(dim, int)
    if step != 1:
        raise _NotRecognised(f"its step is {step}")
    if op_name(source) == "aten::copy":
        # cache[...] = update is a copy over a slice of the cache, put back.
        written = argument(source, "src")
        assert isinstance(written, torch.fx.Node)
        if not _same_shape(written.meta[_VALUE].shape, source.meta[_VALUE].shape):
            raise _NotRecognised("the update is broadcast")
        source = written
    dim %= cache.meta[_VALUE].dim()
    return _update(node, cache, _cast(source, cache, node), _start_tensor(start), dim)


_RECOGNISERS = {
    "aten::index_copy": _index_copy,
    "aten::index_put": _index_put,
    "aten::slice_scatter": _slice_scatter,
}


def _start_tensor(start: object) -> torch.fx.Node:
    """The tensor that ``start`` was read from."""
    start = 0 if start is None else start
    if isinstance(start, int):
        raise _NotRecognised(f"its start is always {start}; make that an input of the method")
    if isinstance(start, torch.fx.Node) and op_name(start) in ("aten::_local_scalar_dense", "aten::item"):
        source = start.args[0]
        if isinstance(source, torch.fx.Node) and source.meta[_VALUE].dim() <= 1:
            return source
    raise _NotRecognised("its start isn't position.item()")


def _update(
    node: torch.fx.Node, cache: torch.fx.Node, update: torch.fx.Node, position: torch.fx.Node, dim: int
) -> torch.fx.Node:
    expected = list(cache.meta[_VALUE].shape)
    expected[dim] = update.meta[_VALUE].shape[dim] if update.meta[_VALUE].dim() == len(expected) else -1
    if not _same_shape(expected, update.meta[_VALUE].shape):
        raise _NotRecognised(f"its update has shape {list(update.meta[_VALUE].shape)}")
    if position.meta[_VALUE].dtype not in (torch.int32, torch.int64):
        raise _NotRecognised(f"its position is {position.meta[_VALUE].dtype}")
    if source_of_start(position) is None:
        raise _NotRecognised("its position isn't an input of the method")
    for user in cache.users:
        if user is not node and _reads_contents(user):
            raise _NotRecognised(f"{user.name} reads the buffer as it was before the update")
    new = _call(node, exir_ops.edge.etrt.kv_cache_update.default, (cache, update, position, dim))
    new.meta.update({key: value for key, value in node.meta.items() if key != _VALUE})
    return new


def _reads_contents(user: torch.fx.Node) -> bool:
    """False for a slice that is only the target of copies: then nothing but its shape matters."""
    return not user.users or any(op_name(u) != "aten::copy" or u.args[1] is user for u in user.users)


def _fit(update: torch.fx.Node, cache: torch.fx.Node, dim: int, node: torch.fx.Node) -> torch.fx.Node:
    """``update`` with the leading dims of extent 1 that indexing dropped."""
    shape = cache.meta[_VALUE].shape
    while update.meta[_VALUE].dim() < len(shape) and shape[len(shape) - update.meta[_VALUE].dim() - 1] == 1:
        if len(shape) - update.meta[_VALUE].dim() - 1 == dim:
            break
        update = _unsqueeze(update, 0, node)
    return update


def _unsqueeze(tensor: torch.fx.Node, dim: int, before: torch.fx.Node) -> torch.fx.Node:
    return _call(before, exir_ops.edge.aten.unsqueeze_copy.default, (tensor, dim))


def _cast(tensor: torch.fx.Node, cache: torch.fx.Node, before: torch.fx.Node) -> torch.fx.Node:
    """Assignment casts; kv_cache_update doesn't."""
    dtype = cache.meta[_VALUE].dtype
    if tensor.meta[_VALUE].dtype == dtype:
        return tensor
    if isinstance(before.target, torch._ops.OpOverload):
        return _call(before, exir_ops.edge.aten._to_copy.default, (tensor,), {"dtype": dtype})
    order = list(range(tensor.meta[_VALUE].dim()))
    cast = exir_ops.edge.dim_order_ops._to_dim_order_copy.default
    return _call(before, cast, (tensor,), {"dtype": dtype, "dim_order": order})


def _call(
    before: torch.fx.Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> torch.fx.Node:
    if isinstance(before.target, torch._ops.OpOverload):
        target = target._op  # In ATen's dialect.
    with before.graph.inserting_before(before):
        new = before.graph.call_function(target, args, kwargs or {})
    mode = detect_fake_mode(before.meta[_VALUE])
    assert mode is not None

    def value(x: Any) -> Any:
        return x.meta[_VALUE] if isinstance(x, torch.fx.Node) else x

    with mode:
        new.meta[_VALUE] = getattr(target, "_op", target)(
            *map(value, args), **{k: value(v) for k, v in (kwargs or {}).items()}
        )
    return new


def _same_shape(a: Any, b: Any) -> bool:
    def extent(d: Any) -> Any:
        return d.node.expr if isinstance(d, torch.SymInt) else d

    return len(a) == len(b) and all(extent(x) == extent(y) for x, y in zip(a, b, strict=True))
