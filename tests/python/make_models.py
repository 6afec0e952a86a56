"""Writes the programs of the C++ tests: ``make_models.py FOLDER [NAME ...]``.

What is newer in FOLDER than this script, models.py and the exporter stays as it is.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import etrt
import torch
from etrt.engine_cpu import CpuEngineBuilder
from etrt.engines import EngineEntry, EngineState, Tensor
from etrt.options import Options
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from models import (
    Append,
    CallersCache,
    Decoder,
    FunctionalCache,
    GatedDelta,
    IndexCopy,
    IndexPut,
    Initial,
    SliceAssign,
    Twice,
    WriteOnly,
    append_and_sum,
    fill,
)
from torch import nn
from torch.export import Dim

MOST = 16
"""Tokens that a prefill takes."""


def _tokens(batch: int, count: int) -> torch.Tensor:
    return torch.zeros(batch, count, dtype=torch.int64)


def decoder(module: nn.Module, **options: Any) -> bytes:
    """prefill (1 to MOST tokens) and decode (1).

    tokens: int64 [B, T]; position: int64 [B]; logits: [B, T, 64].
    """
    batch = module.layers[0]["attention"].cache.k.shape[0]
    position = torch.zeros(batch, dtype=torch.int64)
    return etrt.export(
        {"prefill": module, "decode": module},
        {"prefill": (_tokens(batch, 3), position), "decode": (_tokens(batch, 1), position)},
        {"prefill": ({1: Dim("tokens", min=1, max=MOST)}, None)},
        **options,
    ).buffer


def one_method(module: nn.Module, model_id: str) -> bytes:
    """decode: tokens int64 [1, 1], position int64 [1]."""
    example = (_tokens(1, 1), torch.tensor([0]))
    return etrt.export({"decode": module}, {"decode": example}, model_id=model_id).buffer


def plain(module: nn.Module, index_for_each: bool, **options: Any) -> bytes:
    """prefill: tokens int64 [1, 1 to MOST], position int64 [T] or [1]; output [1, 2, T, 4]."""
    tokens = Dim("tokens", min=1, max=MOST)
    position = torch.arange(3) if index_for_each else torch.tensor([0])
    shapes = ({1: tokens}, {0: tokens} if index_for_each else None)
    examples = {"prefill": (_tokens(1, 3), position)}
    return etrt.export({"prefill": module}, examples, {"prefill": shapes}, **options).buffer


def callers(module: nn.Module) -> bytes:
    """prefill and decode: tokens int64 [1, 1 to MOST] or [1, 1], position int64 [1], cache float32 [1, 2, 32, 4].

    Output [1, 2, T, 4].
    """
    position, cache = torch.tensor([0]), torch.zeros(1, 2, 32, 4)
    return etrt.export(
        {"prefill": module, "decode": module},
        {"prefill": (_tokens(1, 3), position, cache), "decode": (_tokens(1, 1), position, cache)},
        {"prefill": ({1: Dim("tokens", min=1, max=MOST)}, None, None)},
    ).buffer


def write_only() -> bytes:
    """decode: tokens int64 [1, 1], position int64 [1], cache float32 [1, 1, 32, 1]; output float32 [1]."""
    example = (_tokens(1, 1), torch.tensor([0]), torch.zeros(1, 1, 32, 1))
    return etrt.export({"decode": WriteOnly()}, {"decode": example}).buffer


def xnnpack(module: nn.Module, *example: torch.Tensor) -> bytes:
    """forward, for ExecuTorch's kernels and XNNPACK alone; where outputs go is said at run time."""
    program = to_edge_transform_and_lower(
        torch.export.export(module, example), partitioner=[XnnpackPartitioner()]
    )
    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    return bytes(program.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning)).buffer)


def xnnpack_prefill() -> bytes:
    """tokens int64 [1, 3], position int64 [1], cache float32 [1, 2, 32, 4]; output [1, 2, 3, 4] and the new cache."""
    example = (_tokens(1, 3), torch.tensor([0]), torch.zeros(1, 2, 32, 4))
    return xnnpack(FunctionalCache(fill(CallersCache())), *example)


def gated_delta() -> bytes:
    """prefill and decode: x float32 [1, T, 16], position int64 [1]; output as x."""
    module, position = fill(GatedDelta()), torch.tensor([0])
    return etrt.export(
        {"prefill": module, "decode": module},
        {"prefill": (torch.ones(1, 3, 16), position), "decode": (torch.ones(1, 1, 16), position)},
        {"prefill": ({1: Dim("tokens", min=1, max=MOST)}, None)},
    ).buffer


def initial() -> bytes:
    """forward: x float32 [4]."""
    return etrt.export(Initial(), (torch.ones(4),)).buffer


def no_state() -> bytes:
    """forward: x float32 [1, 4]; y float32 [1, 4]."""
    return etrt.export(fill(nn.Linear(4, 4)), (torch.ones(1, 4),)).buffer


def append() -> bytes:
    """prefill and decode: x float32 [1, 2, n, 4], n 1 to 8 or 1; position int32 [1]; y as x; capacity 16."""
    module, position = Append(), torch.zeros(1, dtype=torch.int32)
    return etrt.export(
        {"prefill": module, "decode": module},
        {"prefill": (torch.ones(1, 2, 3, 4), position), "decode": (torch.ones(1, 2, 1, 4), position)},
        {"prefill": ({2: Dim("n", min=1, max=8)}, None)},
    ).buffer


def two_caches_one_name() -> bytes:
    """first and second: as append's decode; their caches are two, both called ``cache``."""
    example = (torch.ones(1, 2, 1, 4), torch.zeros(1, dtype=torch.int32))
    return etrt.export({"first": Append(), "second": Append()}, {"first": example, "second": example}).buffer


class _AppendAndSum(nn.Module):
    def forward(
        self, cache: torch.Tensor, update: torch.Tensor, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return append_and_sum(cache, update, position)


def append_engine() -> bytes:
    """The CPU engine by itself, as tests/conformance/engine_suite.h wants it."""
    entries = []
    for name, n in (("prefill", -1), ("decode", 1)):
        shapes = (None, {2: Dim("n", min=1, max=8)}, None) if n < 0 else None
        example = (torch.zeros(1, 2, 16, 4), torch.ones(1, 2, max(n, 3) if n < 0 else n, 4))
        program = torch.export.export(
            _AppendAndSum(), (*example, torch.zeros(1, dtype=torch.int32)), dynamic_shapes=shapes
        )
        edge = to_edge(program, compile_config=EdgeCompileConfig(_check_ir_validity=False))
        cache, rows = (1, 2, 16, 4), (1, 2, n, 4)
        entries.append(
            EngineEntry(
                name,
                name,
                edge.exported_program(),
                [
                    Tensor("cache", torch.float32, cache),
                    Tensor("update", torch.float32, rows),
                    Tensor("position", torch.int32, (1,)),
                ],
                [Tensor("cache_out", torch.float32, cache), Tensor("y", torch.float32, rows)],
                [EngineState("cache", "cache", "cache_out", in_place=True, sequence_dim=2)],
            )
        )
    (engine,) = CpuEngineBuilder().build(entries, Options())
    return engine.data


MODELS: dict[str, Callable[[], bytes]] = {
    "tiny_decoder.pte": lambda: decoder(fill(Decoder())),
    "tiny_batch2.pte": lambda: decoder(fill(Decoder(batch=2))),
    "index_copy_tokens.pte": lambda: plain(fill(IndexCopy()), index_for_each=True),
    "index_put.pte": lambda: plain(fill(IndexPut()), index_for_each=False),
    "slice_assign.pte": lambda: plain(fill(SliceAssign()), index_for_each=False),
    "gated_delta.pte": gated_delta,
    "callers_cache.pte": lambda: callers(fill(CallersCache())),
    "both_owners.pte": lambda: callers(fill(CallersCache(both=True))),
    "write_only.pte": write_only,
    "xnnpack_prefill.pte": xnnpack_prefill,
    "xnnpack_twice.pte": lambda: xnnpack(Twice(), torch.zeros(1, 2, 32, 4)),
    "above.pte": lambda: plain(fill(IndexPut()), index_for_each=False, ownership="caller"),
    "initial.pte": initial,
    "no_state.pte": no_state,
    "two_caches_one_name.pte": two_caches_one_name,
    "conflict_small.pte": lambda: one_method(fill(Decoder(capacity=8, layers=1)), "conflict"),
    "conflict_large.pte": lambda: one_method(fill(Decoder(capacity=16, layers=1)), "conflict"),
    "append.pte": append,
    "append.engine": append_engine,
}


def _newest_source() -> float:
    own = Path(__file__).parent
    sources = [own / "make_models.py", own / "models.py", *Path(etrt.__file__).parent.rglob("*.py")]
    return max(path.stat().st_mtime for path in sources)


def make(folder: Path, names: list[str]) -> None:
    """Writes the files ``names`` of MODELS to ``folder``, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    newest = _newest_source()
    for name in names:
        path = folder / name
        if path.exists() and path.stat().st_mtime > newest:
            print(f"{name}: is there", flush=True)
            continue
        start = time.monotonic()
        data = MODELS[name]()
        partial = path.with_suffix(f".{os.getpid()}.part")  # Two test runs may make one file at once.
        partial.write_bytes(data)
        partial.replace(path)
        print(f"{name}: {len(data)} bytes, {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2:] or list(MODELS))
