"""The operator that appends to a KV cache.

``torch.ops.etrt.kv_cache_update(cache, update, position, sequence_dim=2) -> Tensor`` is functional: it
returns a new cache. Its out variant, with ``out`` being ``cache`` itself, writes the new rows alone: that is
how an engine runs it.

Shapes and dtypes
    cache: any rank from 1, capacity along ``sequence_dim``; any dtype.
    update: as cache, but T along ``sequence_dim``; the dtype of cache.
    position: int32 or int64.
        * a scalar, or one element: where the rows of every batch row start;
        * ``[B]`` (B = cache's dim 0, if that isn't ``sequence_dim``, and B > 1): a start for each batch row;
        * ``[T]``, if there is one batch row: an index for each new row, consecutive.
"""

from __future__ import annotations

import torch

NAME = "etrt::kv_cache_update"

_LIBRARY = torch.library.Library("etrt", "FRAGMENT")
_LIBRARY.define("kv_cache_update(Tensor cache, Tensor update, Tensor position, int sequence_dim=2) -> Tensor")
# While a method is lowered: an update whose result is the new value of a cache that the caller owns.
_LIBRARY.define(
    "callers_kv_cache_update(Tensor cache, Tensor update, Tensor position, int sequence_dim=2) -> Tensor"
)
# While a method is lowered: ``value``, for which ``kept`` has to be computed as well.
_LIBRARY.define("with_update(Tensor value, Tensor kept) -> Tensor")
_LIBRARY.define(
    "kv_cache_update.out(Tensor cache, Tensor update, Tensor position, int sequence_dim=2, *, Tensor(a!) out)"
    " -> Tensor(a!)"
)


def batch_rows(cache: torch.Tensor, sequence_dim: int) -> int:
    """How many rows of ``cache`` have a length of their own: dim 0, if that comes before the sequence."""
    return int(cache.shape[0]) if sequence_dim > 0 else 1


def check_arguments(
    cache: torch.Tensor, update: torch.Tensor, position: torch.Tensor, sequence_dim: int
) -> None:
    """Raises ValueError if shapes or dtypes are none of those this module's docstring lists."""
    rank = cache.dim()
    if not 0 <= sequence_dim < rank:
        raise ValueError(
            f"kv_cache_update: sequence_dim is {sequence_dim}; cache {list(cache.shape)} has dims 0 to {rank - 1}"
        )
    if update.dtype != cache.dtype:
        raise ValueError(
            f"kv_cache_update: update is {_dtype(update)}, cache is {_dtype(cache)}; cast the update to the cache's "
            "dtype"
        )
    same_rank = update.dim() == rank
    if not same_rank or any(d != sequence_dim and update.shape[d] != cache.shape[d] for d in range(rank)):
        expected = ["T" if d == sequence_dim else str(cache.shape[d]) for d in range(rank)]
        raise ValueError(
            f"kv_cache_update: update is {list(update.shape)}; a cache of {list(cache.shape)} with sequence_dim "
            f"{sequence_dim} takes [{', '.join(expected)}]"
        )
    if position.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"kv_cache_update: position is {_dtype(position)}; expected int32 or int64")
    rows = batch_rows(cache, sequence_dim)
    tokens = update.shape[sequence_dim]
    if position.dim() == 0:
        return
    if position.dim() == 1:
        count = position.shape[0]
        if isinstance(count, int) and count in (1, rows):
            return
        if rows == 1 and count == tokens:
            return
    raise ValueError(
        f"kv_cache_update: position is {list(position.shape)}; expected a scalar, [1], "
        + (
            f"[{rows}] (a start for each batch row)"
            if rows > 1
            else f"[{tokens}] (an index for each new row)"
        )
    )


def row_starts(
    cache: torch.Tensor, update: torch.Tensor, position: torch.Tensor, sequence_dim: int
) -> list[int]:
    """Where each batch row's new positions start (one entry if all are alike).

    Raises:
        ValueError: ``position`` isn't consecutive.
        IndexError: rows would fall outside the cache.
    """
    check_arguments(cache, update, position, sequence_dim)
    tokens = update.shape[sequence_dim]
    capacity = cache.shape[sequence_dim]
    values: list[int] = position.reshape(-1).tolist()
    rows = batch_rows(cache, sequence_dim)
    if rows == 1 and len(values) > 1:
        if values != list(range(values[0], values[0] + tokens)):
            raise ValueError(
                f"kv_cache_update: position {values} isn't consecutive; a cache appends one row after the other"
            )
        values = values[:1]
    for row, start in enumerate(values):
        if start < 0 or start + tokens > capacity:
            raise IndexError(
                f"kv_cache_update: rows [{start}, {start + tokens}) of batch row {row} are outside the cache's "
                f"capacity of {capacity}"
            )
    return values


def write_rows(
    cache: torch.Tensor, update: torch.Tensor, position: torch.Tensor, sequence_dim: int = 2
) -> torch.Tensor:
    """Writes the new rows into ``cache`` itself and returns it. Raises as ``row_starts``; then nothing was written."""
    starts = row_starts(cache, update, position, sequence_dim)
    tokens = update.shape[sequence_dim]
    if len(starts) == 1:
        cache.narrow(sequence_dim, starts[0], tokens).copy_(update)
    else:
        for row, start in enumerate(starts):
            cache[row].narrow(sequence_dim - 1, start, tokens).copy_(update[row])
    return cache


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


@torch.library.impl(_LIBRARY, "callers_kv_cache_update", "CompositeExplicitAutograd")
@torch.library.impl(_LIBRARY, "kv_cache_update", "CompositeExplicitAutograd")
def _functional(
    cache: torch.Tensor, update: torch.Tensor, position: torch.Tensor, sequence_dim: int = 2
) -> torch.Tensor:
    return write_rows(cache.clone(), update, position, sequence_dim)


@torch.library.impl(_LIBRARY, "with_update", "CompositeExplicitAutograd")
def _with_update(value: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    return value.clone()


@torch.library.register_fake("etrt::with_update", lib=_LIBRARY)
def _fake_with_update(value: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(value)


@torch.library.impl(_LIBRARY, "kv_cache_update.out", "CompositeExplicitAutograd")
def _out(
    cache: torch.Tensor,
    update: torch.Tensor,
    position: torch.Tensor,
    sequence_dim: int = 2,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    if out.data_ptr() != cache.data_ptr():
        row_starts(cache, update, position, sequence_dim)
        out.copy_(cache)
    return write_rows(out, update, position, sequence_dim)


@torch.library.register_fake("etrt::callers_kv_cache_update", lib=_LIBRARY)
@torch.library.register_fake(NAME, lib=_LIBRARY)
def _fake(
    cache: torch.Tensor, update: torch.Tensor, position: torch.Tensor, sequence_dim: int = 2
) -> torch.Tensor:
    check_arguments(cache, update, position, sequence_dim)
    return torch.empty_like(cache, memory_format=torch.contiguous_format)


@torch.library.register_fake(NAME + ".out", lib=_LIBRARY)
def _fake_out(
    cache: torch.Tensor,
    update: torch.Tensor,
    position: torch.Tensor,
    sequence_dim: int = 2,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    check_arguments(cache, update, position, sequence_dim)
    return out
