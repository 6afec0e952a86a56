"""A TensorRT delegate for ExecuTorch whose KV caches have an owner."""

from __future__ import annotations

import importlib
from typing import Any

# Imported when first used: exporting needs torch, running doesn't.
_LAZY = {
    "EtrtError": "etrt.errors",
    "ExportError": "etrt.errors",
    "Exported": "etrt.exporter",
    "KVCache": "etrt.kv_cache",
    "Program": "etrt.runtime",
    "Session": "etrt.runtime",
    "TensorRTBackend": "etrt.backend",
    "TensorRTPartitioner": "etrt.partitioner",
    "export": "etrt.exporter",
    "last_error": "etrt.runtime",
    "set_default_session": "etrt.runtime",
    "stats": "etrt.runtime",
    "wrap": "etrt.wrapping",
}

__all__ = [*_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'etrt' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
