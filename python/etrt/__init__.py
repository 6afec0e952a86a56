"""A TensorRT delegate for ExecuTorch whose KV caches have an owner.

Importing this package registers the delegate with ``executorch.runtime``.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from typing import Any

# Loading the C++ part registers the delegate. A source tree that hasn't been built can still export.
if importlib.util.find_spec("etrt._core") is not None:
    try:
        importlib.import_module("etrt._core")
    except ImportError as error:
        warnings.warn(f"the delegate isn't registered: {error}; `etrt doctor` says more", stacklevel=2)

# Imported when first used: they need torch, which takes seconds.
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
