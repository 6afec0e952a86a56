"""One decode step: etrt against the same model as a plain ExecuTorch program with ordinary mutable buffers.

The plain program has the same layers, weights and XNNPACK parts; its caches are buffers updated by ``index_copy_``,
as ExecuTorch takes them without a delegate that owns them. Both run in this process, step by step in turn, so that
what else the machine does slows both. ``--layers`` says how many of the model's layers there are (30 are all).
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path

import etrt
import torch
from etrt.llm.gguf_file import GgufFile, LlamaConfig, find_smollm2
from etrt.llm.llama import Llama, load_llama
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from rich.console import Console
from rich.table import Table
from torch import nn


class PlainCache(nn.Module):
    """As etrt.KVCache, with ordinary buffers."""

    def __init__(self, like: etrt.KVCache) -> None:
        super().__init__()
        self.register_buffer("k", torch.zeros_like(like.k))
        self.register_buffer("v", torch.zeros_like(like.v))

    def update(
        self, k: torch.Tensor, v: torch.Tensor, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See etrt.KVCache; one position."""
        return self.k.index_copy_(2, position, k), self.v.index_copy_(2, position, v)


class ShortGguf(GgufFile):
    """A model's first layers."""

    def __init__(self, path: Path, layers: int) -> None:
        super().__init__(path)
        self.layers = layers

    def config(self) -> LlamaConfig:
        """With fewer layers."""
        return dataclasses.replace(super().config(), layers=self.layers)


def main() -> None:
    """Prints a row for each capacity."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--capacities", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    console = Console(stderr=False)
    table = Table(
        "capacity", "plain ms", "etrt ms", "plain / etrt", title=f"decode step, {arguments.layers} layers"
    )
    for capacity in arguments.capacities:
        with tempfile.TemporaryDirectory() as folder:
            plain, ours = measure(arguments.layers, capacity, arguments.steps, Path(folder))
        table.add_row(str(capacity), f"{plain:.2f}", f"{ours:.2f}", f"{plain / ours:.2f}")
    console.print(table)


def measure(layers: int, capacity: int, steps: int, folder: Path) -> tuple[float, float]:
    """Median milliseconds of a step: plain, etrt. Fails if the two don't agree on the logits."""
    model = load_llama(ShortGguf(find_smollm2(), layers), capacity)
    example = (torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    etrt.export({"decode": model}, {"decode": example}).save(folder / "etrt.pte")
    write_plain(model, example, folder / "plain.pte")
    runs = [
        etrt.Program(folder / name).method(method)
        for name, method in (("plain.pte", "forward"), ("etrt.pte", "decode"))
    ]
    times: list[list[float]] = [[], []]
    with etrt.Session():
        for step in range(steps):
            inputs = torch.tensor([[step + 100]]), torch.tensor([step])
            logits = []
            for run, its_times in zip(runs, times, strict=True):
                start = time.perf_counter()
                output = run(*inputs)[0]
                its_times.append((time.perf_counter() - start) * 1e3)
                logits.append(output.clone())
            torch.testing.assert_close(logits[0], logits[1], rtol=1e-3, atol=1e-3)
    # The first steps pack weights and fault memory in.
    plain, ours = (statistics.median(its_times[5:]) for its_times in times)
    return plain, ours


def write_plain(model: Llama, example: tuple[torch.Tensor, ...], path: Path) -> None:
    """The same model without etrt."""
    for layer in model.layers:
        layer.attention.cache = PlainCache(layer.attention.cache)
    traced = torch.export.export(model, example)
    program = to_edge_transform_and_lower(traced, partitioner=[XnnpackPartitioner()]).to_executorch()
    with path.open("wb") as file:
        program.write_to_file(file)


if __name__ == "__main__":
    main()
