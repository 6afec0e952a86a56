"""A KV cache that eager PyTorch and an exported program update alike."""

from __future__ import annotations

import torch
from torch import nn

from etrt.ops import write_rows


class KVCache(nn.Module):
    """Keys and values of one attention layer, appended at a position.

    Buffers ``k`` and ``v``: ``[batch, heads, capacity, head_dim]``, zeros. A module that is exported by several
    methods, or shared by several modules, is one cache for all of them.

    ``initial_length`` says how many positions hold valid data at export (0 unless the buffers were filled).

    Raises:
        ValueError: an extent isn't positive.
    """

    k: torch.Tensor
    v: torch.Tensor

    def __init__(
        self,
        batch: int,
        heads: int,
        capacity: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        for name, extent in (
            ("batch", batch),
            ("heads", heads),
            ("capacity", capacity),
            ("head_dim", head_dim),
        ):
            if extent <= 0:
                raise ValueError(f"KVCache: {name} is {extent}; expected a positive number")
        self.initial_length = 0
        self.register_buffer("k", torch.zeros(batch, heads, capacity, head_dim, dtype=dtype))
        self.register_buffer("v", torch.zeros(batch, heads, capacity, head_dim, dtype=dtype))

    @property
    def capacity(self) -> int:
        """How many positions fit."""
        return int(self.k.shape[2])

    def update(
        self, k: torch.Tensor, v: torch.Tensor, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends T positions and returns the whole caches as they are afterwards.

        Args:
            k, v: ``[batch, heads, T, head_dim]`` in the cache's dtype.
            position: int32 or int64: a scalar or ``[1]`` (where all rows start), ``[batch]`` (a start for each
                row), or ``[T]`` consecutive indices if batch is 1.

        Returns:
            k and v caches, ``[batch, heads, capacity, head_dim]``. In eager mode they are the buffers.

        Raises:
            ValueError: shapes, dtypes or positions are none of those above.
            IndexError: positions are outside the capacity.
        """
        return self._append("k", k, position), self._append("v", v, position)

    def _append(self, name: str, update: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        cache = getattr(self, name)
        if torch.compiler.is_compiling():
            # A custom operator that mutates its argument can't be lowered; a functional one whose result
            # becomes the buffer can, and an engine runs it in place.
            new = torch.ops.etrt.kv_cache_update(cache, update, position, 2)
            cache.copy_(new)
            return new
        with torch.no_grad():
            return write_rows(cache, update, position, 2)
