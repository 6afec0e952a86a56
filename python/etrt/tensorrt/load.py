"""Imports TensorRT and torch_tensorrt, on machines with and without a GPU."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from unittest import mock

import torch

from etrt.errors import ExportError

INSTALL = {
    "tensorrt_rtx": (
        "pip install --no-deps torch-tensorrt-rtx==2.14.0 tensorrt_rtx==1.6.1.120 "
        "tensorrt_rtx_cu13==1.6.1.120 tensorrt-rtx-cu13-libs==1.6.1.120 "
        "tensorrt-rtx-cu13-bindings==1.6.1.120 && pip install dllist psutil"
    ),
    "tensorrt": "install TensorRT's SDK with its Python package, and torch-tensorrt==2.14.0, on a machine "
    "with a GPU",
}
_DISTRIBUTIONS = {"tensorrt_rtx": "torch-tensorrt-rtx", "tensorrt": "torch-tensorrt"}
_REQUIRED = {"tensorrt_rtx": ("tensorrt_rtx", "torch_tensorrt"), "tensorrt": ("tensorrt", "torch_tensorrt")}
_ANY_CAPABILITY = (8, 9)  # What it is asked for decides about Tegra boards alone.
_lock = threading.RLock()


@dataclass(frozen=True)
class Libraries:
    """The imported packages."""

    trt: ModuleType
    """``tensorrt_rtx`` or ``tensorrt``."""
    torch_tensorrt: ModuleType


def load(kind: str) -> Libraries:
    """Imports the packages for engine ``kind``, "tensorrt_rtx" or "tensorrt".

    Raises:
        ExportError: one is missing, or torch_tensorrt is installed for the other kind.
    """
    missing = [name for name in _REQUIRED[kind] if importlib.util.find_spec(name) is None]
    if missing:
        raise ExportError(
            f"engine {kind!r} needs the Python package {' and '.join(missing)}: {INSTALL[kind]}"
        )
    distributions = importlib.metadata.packages_distributions().get("torch_tensorrt", [])
    if _DISTRIBUTIONS[kind] not in {name.replace("_", "-").lower() for name in distributions}:
        raise ExportError(
            f"engine {kind!r} needs torch_tensorrt from {_DISTRIBUTIONS[kind]}, but it is installed from "
            f"{', '.join(distributions)}: {INSTALL[kind]}, in an environment of its own"
        )
    with gpu_queries_answered(), _quiet():
        try:
            libraries = Libraries(importlib.import_module(kind), importlib.import_module("torch_tensorrt"))
        except Exception as error:  # torch_tensorrt raises plain Exception where a library can't be loaded.
            raise ExportError(f"engine {kind!r}: importing TensorRT failed: {error}") from error
        _register_converters()
    return libraries


@cache
def _register_converters() -> None:
    from etrt.tensorrt import kv_update

    kv_update.register_converter()


@contextmanager
def gpu_queries_answered() -> Iterator[None]:
    """Answers for the GPU that isn't there; does nothing where one is.

    torch_tensorrt asks for a device index and a compute capability when it is imported and when it converts,
    but the answers reach neither the network nor the plan. Process-wide while it lasts: other threads that
    ask are answered too.
    """
    if torch.cuda.is_available():
        yield
        return
    answers = {"get_device_capability": lambda *_: _ANY_CAPABILITY, "current_device": lambda: 0}
    with _lock, ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings about optional packages that nobody has asked for."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
