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
from torch.export import ExportedProgram

from etrt.engines import BuiltEngine, EngineEntry
from etrt.options import Options


class CpuEngineBuilder:
    """Linear layers and what else it takes to XNNPACK; the rest to ExecuTorch's own kernels."""

    kind = "cpu"
    ownerships = ("session",)

    def ops_to_not_decompose(
        self, program: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[torch.fx.Node], bool] | None]:
        """What XNNPACK wants whole."""
        ops, check = XnnpackPartitioner().ops_to_not_decompose(program)
        return list(ops), check

    def build(self, entries: Sequence[EngineEntry], options: Options) -> BuiltEngine:
        """Constants that entries have in common are in the program once."""
        del options
        programs = {}
        for entry in entries:
            for node in entry.program.graph.nodes:
                # XNNPACK's partitioner refuses nodes that are tagged already.
                node.meta.pop("delegation_tag", None)
            programs[entry.name] = entry.program
        manager = EdgeProgramManager(programs, None, EdgeCompileConfig(_check_ir_validity=False))
        manager = manager.to_backend({name: XnnpackPartitioner() for name in programs})
        program = manager.to_executorch(
            ExecutorchBackendConfig(
                memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
            )
        )
        return BuiltEngine(program.buffer, {name: name for name in programs})
