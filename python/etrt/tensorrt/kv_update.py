"""``torch.ops.etrt.kv_cache_update`` in TensorRT.

Where the cache is a network input that nothing else reads, its result is the state's next value, and shape
and dtype are those that IKVCacheUpdateLayer takes ([B, N, capacity, H]; fp32, fp16, bf16: NvInfer.h), the
layer is used and TensorRT writes the new rows alone. Anything else becomes a select over the whole cache,
which is right for any shape but needs an output of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence

import torch

import etrt.ops  # noqa: F401  (registers the operator)
from etrt.tensorrt.graphs import KV_UPDATE, Emitter, KvUpdate, op_name

_LAYER_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_LAYER_RANK = 4
_LAYER_SEQUENCE_DIM = 2
_aten = torch.ops.aten


def candidates(graph_module: torch.fx.GraphModule, outputs: Sequence[str]) -> set[str]:
    """The outputs that IKVCacheUpdateLayer can write in place.

    Args:
        graph_module: in ATen.
        outputs: binding names of the graph's outputs, in order.
    """
    results = list(graph_module.graph.output_node().args[0])
    return {
        name
        for name, node in zip(outputs, results, strict=True)
        if op_name(node) == KV_UPDATE and results.count(node) == 1 and _fits_layer(node)
    }


def lower(graph_module: torch.fx.GraphModule, outputs: Sequence[str], in_place: Collection[str]) -> None:
    """Brings every kv_cache_update into the form that the converter takes, or replaces it by a select.

    Args:
        graph_module, outputs: as for ``candidates``; the graph is changed.
        in_place: the outputs that are to be written in place, candidates all of them.
    """
    graph = graph_module.graph
    results = zip(outputs, graph.output_node().args[0], strict=True)
    layers = [node for name, node in results if name in in_place]
    for node in [n for n in graph.nodes if op_name(n) == KV_UPDATE]:
        if node in layers:
            call = KvUpdate.of(node)
            starts = _starts(Emitter(node), call.position, int(call.cache.meta["val"].shape[0]))
            node.args, node.kwargs = (call.cache, call.update, starts, call.sequence_dim), {}
        else:
            node.replace_all_uses_with(_select(node))
            graph.erase_node(node)
    graph.lint()
    graph_module.recompile()


def _fits_layer(node: torch.fx.Node) -> bool:
    """IKVCacheUpdateLayer can do this update, and sharing memory changes nobody else's input."""
    call = KvUpdate.of(node)
    value = call.cache.meta["val"]
    return (
        call.cache.op == "placeholder"
        and list(call.cache.users) == [node]
        and value.dim() == _LAYER_RANK
        and call.sequence_dim == _LAYER_SEQUENCE_DIM
        and value.dtype in _LAYER_DTYPES
        and all(isinstance(extent, int) for extent in value.shape)
    )


def register_converter() -> None:
    """Makes the operator known to torch_tensorrt. Call once, after importing it."""
    import tensorrt as trt
    from torch_tensorrt.dynamo.conversion import dynamo_tensorrt_converter

    @dynamo_tensorrt_converter(torch.ops.etrt.kv_cache_update.default, supports_dynamic_shapes=True)
    def convert(ctx, target, args, kwargs, name):  # type: ignore[no-untyped-def]
        del target, kwargs
        cache, update, starts = args[:3]
        layer = ctx.net.add_kv_cache_update(cache, update, starts, trt.KVCacheMode.LINEAR)
        if layer is None:
            raise RuntimeError(f"{name}: TensorRT refused add_kv_cache_update of {cache.shape} {cache.dtype}")
        layer.name = name
        return layer.get_output(0)


def _starts(emit: Emitter, position: torch.fx.Node, batch: int) -> torch.fx.Node:
    """int32 ``[batch]``: where each row's new positions start."""
    rank = position.meta["val"].dim()
    starts = emit(_aten._to_copy.default, position, dtype=torch.int32)
    if rank == 0:
        starts = emit(_aten.reshape.default, starts, [1])
    if batch == 1:
        # One index for each token, or one for all: the first says where they start.
        return emit(_aten.slice.Tensor, starts, 0, 0, 1) if rank == 1 else starts
    extent = starts.meta["val"].shape[0]
    return starts if extent == batch else emit(_aten.expand.default, starts, [batch])


def _select(node: torch.fx.Node) -> torch.fx.Node:
    """where(start <= i < start + T, update[i - start], cache[i]) along the sequence."""
    call = KvUpdate.of(node)
    cache, update, dim = call.cache, call.update, call.sequence_dim
    emit = Emitter(node)
    value = cache.meta["val"]
    rank, capacity = value.dim(), value.shape[dim]
    batch = int(value.shape[0]) if dim > 0 else 1
    starts = _starts(emit, call.position, batch)
    tokens: object = update.meta["val"].shape[dim]
    if not isinstance(tokens, int):
        tokens = emit(_aten.sym_size.int, update, dim)
    along = [capacity if d == dim else 1 for d in range(rank)]
    per_row = [batch if d == 0 and dim > 0 else 1 for d in range(rank)]
    index = emit(_aten.arange.start_step, 0, capacity, dtype=torch.int32, device=torch.device("cpu"))
    offset = emit(
        _aten.sub.Tensor,
        emit(_aten.reshape.default, index, along),
        emit(_aten.reshape.default, starts, per_row),
    )
    valid = emit(
        _aten.logical_and.default, emit(_aten.ge.Scalar, offset, 0), emit(_aten.lt.Scalar, offset, tokens)
    )
    last = tokens - 1 if isinstance(tokens, int) else emit(operator.sub, tokens, 1)
    source = emit(_aten.clamp.default, offset, 0, last)
    source = emit(_aten._to_copy.default, source, dtype=torch.int64)
    if batch == 1:  # torch_tensorrt's gather takes no dynamic extents; its index_select does.
        rows = emit(_aten.index_select.default, update, dim, emit(_aten.reshape.default, source, [capacity]))
    else:
        rows = emit(_aten.gather.default, update, dim, emit(_aten.expand.default, source, list(value.shape)))
    return emit(_aten.where.self, valid, rows, cache)
