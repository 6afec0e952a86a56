"""Edits to FX graphs that keep ``meta["val"]``, which the converters read, right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from torch._guards import detect_fake_mode

KV_UPDATE = "etrt::kv_cache_update"


def overload_of(node: torch.fx.Node) -> torch._ops.OpOverload | None:
    """The operator that a node calls, of ATen or edge dialect; None if it calls none."""
    target = node.target._op if isinstance(node.target, EdgeOpOverload) else node.target
    return target if node.op == "call_function" and isinstance(target, torch._ops.OpOverload) else None


def op_name(node: torch.fx.Node) -> str:
    """ "aten::view", without the overload; "" where no operator is called."""
    overload = overload_of(node)
    return "" if overload is None else str(overload._schema.name)


@dataclass(frozen=True)
class KvUpdate:
    """The arguments of a kv_cache_update."""

    cache: torch.fx.Node
    update: torch.fx.Node
    position: torch.fx.Node
    sequence_dim: int

    @staticmethod
    def of(node: torch.fx.Node) -> KvUpdate:
        """Fills in defaults."""
        names = [a.name for a in torch.ops.etrt.kv_cache_update.default._schema.arguments]
        given = {"sequence_dim": 2, **dict(zip(names, node.args, strict=False)), **node.kwargs}
        return KvUpdate(**given)


def values(nodes: Any) -> Any:
    """``nodes``, any nest of them, with the fake value of each in its place."""
    return torch.fx.map_arg(nodes, lambda node: node.meta["val"])


def refresh(node: torch.fx.Node, fake_mode: torch._subclasses.FakeTensorMode) -> None:
    """Computes the node's fake value from its arguments'."""
    with fake_mode:
        node.meta["val"] = node.target(*values(node.args), **values(node.kwargs))
    node.meta.pop("tensor_meta", None)


def fake_mode_of(graph: torch.fx.Graph) -> torch._subclasses.FakeTensorMode:
    """The mode in which the graph's values were made."""
    mode = detect_fake_mode([node.meta["val"] for node in graph.nodes if "val" in node.meta])
    assert mode is not None, "a graph without tensors"
    return mode


class Emitter:
    """Adds calls before a node."""

    def __init__(self, before: torch.fx.Node) -> None:
        self._before = before
        self._graph = before.graph
        self._mode = fake_mode_of(self._graph)

    def __call__(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> torch.fx.Node:
        """The result of ``target(*args, **kwargs)`` as a new node."""
        with self._graph.inserting_before(self._before):
            node = self._graph.call_function(target, args, kwargs)
        refresh(node, self._mode)
        return node
