"""float32 programs in half precision.

A plan is strongly typed: TensorRT computes in the types that the graph says. Here matrix products,
convolutions, embeddings, attention and KV caches get float16; what loses too much in it (reductions, norms,
softmax, exponentials, angles) stays float32; the rest follows its arguments, float32 winning. Inputs, outputs
and states that aren't updated in place keep their types.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from etrt.tensorrt.graphs import fake_mode_of, op_name, refresh

_HALF = torch.float16
_FLOAT = torch.float32

_IN_HALF = {
    "aten::_convolution",
    "aten::addmm",
    "aten::baddbmm",
    "aten::bmm",
    "aten::convolution",
    "aten::embedding",
    "aten::linear",
    "aten::matmul",
    "aten::mm",
    "aten::scaled_dot_product_attention",
    "etrt::kv_cache_update",
}
_IN_FLOAT = {
    "aten::_log_softmax",
    "aten::_softmax",
    "aten::acos",
    "aten::asin",
    "aten::cos",
    "aten::cosh",
    "aten::cumsum",
    "aten::exp",
    "aten::expm1",
    "aten::linalg_vector_norm",
    "aten::log",
    "aten::log10",
    "aten::log1p",
    "aten::log2",
    "aten::mean",
    "aten::native_group_norm",
    "aten::native_layer_norm",
    "aten::pow",
    "aten::prod",
    "aten::reciprocal",
    "aten::rsqrt",
    "aten::sin",
    "aten::sinh",
    "aten::softplus",
    "aten::sqrt",
    "aten::sum",
    "aten::tan",
    "aten::var",
    "aten::var_mean",
}


def to_half(
    graph_module: torch.fx.GraphModule, inputs: Sequence[str], outputs: Sequence[str], halves: Collection[str]
) -> None:
    """Rewrites ``graph_module``, in ATen with constants as attributes, in place.

    Args:
        inputs, outputs: names of the bindings, in the graph's order.
        halves: float32 bindings that become float16: caches that are updated in place.
    """
    _Rewriter(graph_module).run(inputs, outputs, halves)


class _Rewriter:
    def __init__(self, graph_module: torch.fx.GraphModule) -> None:
        self._module = graph_module
        self._graph = graph_module.graph
        self._mode = fake_mode_of(self._graph)
        self._weak: set[torch.fx.Node] = set()
        """Made of constants alone: they take the type of what they meet."""
        self._casts: dict[tuple[torch.fx.Node, torch.dtype], torch.fx.Node] = {}

    def run(self, inputs: Sequence[str], outputs: Sequence[str], halves: Collection[str]) -> None:
        """See ``to_half``."""
        results = self._graph.output_node().args[0]
        wanted = [_HALF if name in halves else _dtype(r) for name, r in zip(outputs, results, strict=True)]
        names = iter(inputs)
        for node in list(self._graph.nodes):
            if node.op == "placeholder" and next(names) in halves:
                with self._mode:
                    node.meta["val"] = node.meta["val"].to(_HALF)
            elif node.op == "get_attr":
                self._weak.add(node)
            elif node.op == "call_function":
                self._rewrite(node)
            elif node.op == "output":
                pairs = zip(node.args[0], wanted, strict=True)
                node.args = (tuple(self._cast(r, dtype, node) for r, dtype in pairs),)
        self._graph.eliminate_dead_code()
        self._graph.lint()
        self._module.recompile()

    def _rewrite(self, node: torch.fx.Node) -> None:
        floats = [a for a in node.all_input_nodes if _dtype(a) in (_HALF, _FLOAT)]
        name = op_name(node)
        if name in _IN_HALF:
            target = _HALF
        elif all(a in self._weak for a in floats):
            if all(a in self._weak for a in node.all_input_nodes):
                self._weak.add(node)
            return
        elif name in _IN_FLOAT or any(_dtype(a) == _FLOAT and a not in self._weak for a in floats):
            target = _FLOAT
        else:
            target = _HALF
        for argument in floats:
            cast = self._cast(argument, target, node)
            if cast is not argument:
                node.replace_input_with(argument, cast)
        refresh(node, self._mode)

    def _cast(self, node: torch.fx.Node, dtype: torch.dtype | None, user: torch.fx.Node) -> torch.fx.Node:
        if dtype is None or _dtype(node) == dtype:
            return node
        key = (node, dtype)
        if key not in self._casts:
            self._casts[key] = (
                self._constant(node, dtype) if node.op == "get_attr" else self._call(node, dtype, user)
            )
        return self._casts[key]

    def _constant(self, node: torch.fx.Node, dtype: torch.dtype) -> torch.fx.Node:
        value = _attribute(self._module, node)
        name = f"{str(node.target).replace('.', '_')}_as_{str(dtype).removeprefix('torch.')}"
        self._module.register_buffer(name, value.detach().to(dtype))
        with self._graph.inserting_after(node):
            constant = self._graph.get_attr(name)
        with self._mode:
            constant.meta["val"] = node.meta["val"].to(dtype)
        self._weak.add(constant)
        return constant

    def _call(self, node: torch.fx.Node, dtype: torch.dtype, user: torch.fx.Node) -> torch.fx.Node:
        with self._graph.inserting_before(user):
            call = self._graph.call_function(torch.ops.aten._to_copy.default, (node,), {"dtype": dtype})
        refresh(call, self._mode)
        return call


def _attribute(module: torch.nn.Module, node: torch.fx.Node) -> torch.Tensor:
    *path, name = str(node.target).split(".")
    value: torch.Tensor = getattr(module.get_submodule(".".join(path)), name)
    return value


def _dtype(node: torch.fx.Node) -> torch.dtype | None:
    """None for what is no tensor."""
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None
