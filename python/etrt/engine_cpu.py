"""The CPU engine: one ExecuTorch program, an entry for each partition.

Inputs and outputs are left out of the memory plan, so that the run time binds them where it likes: the output
of an in-place state gets its input's address, and the out variant of kv_cache_update then writes new rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.schema import DelegateCall, ExecutionPlan, KernelCall, Program
from torch.export import ExportedProgram

from etrt.engines import BuiltEngine, EngineEntry
from etrt.errors import ExportError
from etrt.options import Options
from etrt.position import is_kv_update, op_name
from etrt.progress import report


class CpuEngineBuilder:
    """Linear layers and what else it takes to XNNPACK; the rest to ExecuTorch's own kernels."""

    kind = "cpu"

    def ops_to_not_decompose(
        self, program: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[torch.fx.Node], bool] | None]:
        """What XNNPACK wants whole."""
        ops, check = XnnpackPartitioner().ops_to_not_decompose(program)
        return list(ops), check

    def check_options(self, options: Options) -> None:
        """There are none."""
        for name in options.engine_options:
            raise ExportError(f"engine 'cpu' has no option {name!r}; it has none")

    def build(self, entries: Sequence[EngineEntry], options: Options) -> list[BuiltEngine]:
        """Constants that entries have in common are in the program once."""
        del options
        report("preparing the methods", 0.0)
        programs = {entry.name: entry.program for entry in entries}
        for program in programs.values():
            for node in program.graph.nodes:
                # XNNPACK's partitioner refuses nodes that are tagged already.
                node.meta.pop("delegation_tag", None)
                # A node's history, which each of many passes would copy: a tenth of the time of an export.
                node.meta.pop("from_node", None)
            _remove_expansions_to_same_shape(program)
        manager = EdgeProgramManager(programs, None, EdgeCompileConfig(_check_ir_validity=False))
        report("building for XNNPACK", 0.1)
        manager = manager.to_backend({name: _Partitioner() for name in programs})
        report("writing the engine", 0.8)
        program = manager.to_executorch(
            ExecutorchBackendConfig(
                memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
            )
        )
        for entry in entries:
            _check_bindings(entry, program.executorch_program)
        report("writing the engine", 1.0)
        return [BuiltEngine(bytes(program.buffer), {name: name for name in programs})]


class _Partitioner(XnnpackPartitioner):  # type: ignore[misc]
    """Leaves copies of inputs and outputs, and views of caches.

    XNNPACK takes such copies and then drops them, and with them the output. It copies what it views; ExecuTorch
    doesn't.
    """

    def get_matched_nodes_from_configs(self, ep: ExportedProgram) -> list[list[torch.fx.Node]]:
        output = ep.graph.output_node()
        kept = {node for node in output.args[0] if isinstance(node, torch.fx.Node) and _is_clone(node)}
        kept |= {
            user for node in ep.graph.nodes if is_kv_update(node) for user in node.users if _is_view(user)
        }
        groups: list[list[torch.fx.Node]] = super().get_matched_nodes_from_configs(ep)
        return [group for group in groups if kept.isdisjoint(group)]


def _is_clone(node: torch.fx.Node) -> bool:
    return op_name(node) in ("aten::clone", "dim_order_ops::_clone_dim_order")


def _is_view(node: torch.fx.Node) -> bool:
    return op_name(node) == "aten::view_copy"


def _remove_expansions_to_same_shape(program: ExportedProgram) -> None:
    """matmul decomposes to an expand_copy of each operand, a cache among them, though most expand nothing."""
    graph = program.graph
    for node in graph.nodes:
        if op_name(node) != "aten::expand_copy":
            continue
        source = node.args[0]
        if _extents(source) == _extents(node):
            node.replace_all_uses_with(source)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def _extents(node: torch.fx.Node) -> list[object]:
    return [d.node.expr if isinstance(d, torch.SymInt) else d for d in node.meta["val"].shape]


def _check_bindings(entry: EngineEntry, program: Program) -> None:
    """The program keeps what the run time is promised: outputs of their own, caches that get new rows alone.

    Raises:
        ExportError: it doesn't; ExecuTorch's passes have done something unforeseen.
    """
    plan = next(p for p in program.execution_plan if p.name == entry.name)
    names = [t.name for t in entry.inputs], [t.name for t in entry.outputs]
    if len(plan.inputs) != len(names[0]) or len(plan.outputs) != len(names[1]):
        raise ExportError(
            f"method {entry.method!r}: the engine has {len(plan.inputs)} inputs and {len(plan.outputs)} outputs "
            f"instead of {len(names[0])} and {len(names[1])}"
        )
    inputs = dict(zip(names[0], plan.inputs, strict=True))
    outputs = dict(zip(names[1], plan.outputs, strict=True))
    if len({*plan.inputs, *plan.outputs}) != len(plan.inputs) + len(plan.outputs):
        raise ExportError(
            f"method {entry.method!r}: an input or output of the engine is another output as well"
        )
    calls = _calls(plan)
    for name, value in outputs.items():
        writers = [
            op for op, arguments in calls if value in arguments[-1:] or (op == "" and value in arguments)
        ]
        if not writers or any(op.startswith("executorch_prim::") for op in writers):
            raise ExportError(
                f"method {entry.method!r}: {name} is a view or constant in the engine; return a clone() of it"
            )
    for state in entry.states:
        if not state.in_place or not state.output:
            continue
        cache, new = inputs[state.input], outputs[state.output]
        readers = [op for op, arguments in calls if cache in arguments]
        updates = [
            op
            for op, args in calls
            if op.startswith("etrt::kv_cache_update") and args[0] == cache and args[-1] == new
        ]
        if len(updates) != 1 or len(readers) != 1:
            raise ExportError(
                f"method {entry.method!r}: state {state.id!r} should be updated in place, but the engine reads it in "
                f"{', '.join(op or 'a delegate' for op in readers) or 'nothing'}"
            )


def _calls(plan: ExecutionPlan) -> list[tuple[str, list[int]]]:
    """Name ("" for a delegate) and value indices of each instruction."""
    calls = []
    for chain in plan.chains:
        for instruction in chain.instructions:
            args = instruction.instr_args
            if isinstance(args, KernelCall):
                calls.append((plan.operators[args.op_index].name, list(args.args)))
            elif isinstance(args, DelegateCall):
                calls.append(("", list(args.args)))
    return calls
