"""What is in an exported program, and running it."""

from __future__ import annotations

from pathlib import Path

import etrt
from etrt import blob
from executorch.exir._serialize._program import PTEFile, deserialize_pte_binary
from executorch.exir.schema import DelegateCall, KernelCall


class Parts:
    """A .pte taken apart."""

    def __init__(self, data: bytes) -> None:
        self.file: PTEFile = deserialize_pte_binary(data)

    def blobs(self, method: str) -> list[blob.Blob]:
        """What the delegates of ``method`` say."""
        plan = self._plan(method)
        delegates = self.file.program.backend_delegate_data
        return [blob.read(delegates[d.processed.index].data) for d in plan.delegates]

    def blob(self, method: str) -> blob.Blob:
        """What its only delegate says."""
        (only,) = self.blobs(method)
        return only

    def states(self, method: str) -> dict[str, blob.State]:
        """By id."""
        return {state.id: state for state in self.blob(method).states}

    def named_data(self) -> dict[str, bytes]:
        """By key."""
        named = self.file.named_data
        return {key: named.buffers[entry.buffer_index] for key, entry in named.pte_data.items()}

    def engines(self) -> dict[str, bytes]:
        """Named data that are engines, by key."""
        data = self.named_data()
        return {key: value for key, value in data.items() if key + ".info" in data}

    def operators(self, method: str) -> list[str]:
        """What ``method`` calls, in order; "delegate" for a delegate."""
        plan = self._plan(method)
        calls = []
        for chain in plan.chains:
            for instruction in chain.instructions:
                if isinstance(instruction.instr_args, DelegateCall):
                    calls.append("delegate")
                elif isinstance(instruction.instr_args, KernelCall):
                    calls.append(plan.operators[instruction.instr_args.op_index].name)
        return calls

    def planned_bytes(self, method: str) -> int:
        """Memory that ExecuTorch plans for ``method``."""
        return sum(self._plan(method).non_const_buffer_sizes)

    def _plan(self, method: str):
        return next(p for p in self.file.program.execution_plan if p.name == method)


def save(exported: etrt.Exported, folder: Path, name: str = "model.pte") -> etrt.Program:
    """Written to ``folder`` and loaded from there."""
    return etrt.Program(exported.save(folder / name))
