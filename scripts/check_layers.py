#!/usr/bin/env python3
"""Checks that includes go one way: a folder includes only folders above it in LAYERS.

Also that no public header includes ExecuTorch, CUDA or TensorRT, that CUDA is named only in
src/device/cuda, and that TensorRT is included only by the shim.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = [
    "base",
    "blob",
    "device",
    "state",
    "engine",
    "engines/cpu",
    "engines/tensorrt",
    "delegate",
    "python",
]
# Siblings that must not know each other, although one is listed first.
SEPARATE = {("engines/tensorrt", "engines/cpu")}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
FOREIGN = re.compile(r"^(executorch/|cuda|NvInfer|nvtx)")


def layer_of(path: str) -> str | None:
    """The layer that a path relative to src/ belongs to."""
    found = [layer for layer in LAYERS if path.startswith(layer + "/")]
    return max(found, key=len) if found else None


def check(path: Path) -> list[str]:
    """Problems of one file."""
    problems = []
    relative = path.relative_to(ROOT)
    public = relative.parts[0] == "include"
    own = None if public else layer_of(str(path.relative_to(ROOT / "src")))
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        name = match.group(1)
        where = f"{relative}:{number}: includes {name}: "
        if public and not (name.startswith("etrt/") or ("/" not in name and not FOREIGN.match(name))):
            problems.append(where + "a public header includes only etrt/ and the standard library")
        if (
            name.startswith("cuda")
            and own != "device/cuda"
            and not str(relative).startswith("src/device/cuda")
        ):
            problems.append(where + "CUDA is used only in src/device/cuda")
        if name.startswith("NvInfer") and own != "engines/tensorrt":
            problems.append(where + "TensorRT is used only in src/engines/tensorrt")
        if name.startswith("executorch/") and own not in ("engines/cpu", "delegate"):
            problems.append(where + "ExecuTorch is used only in src/engines/cpu and src/delegate")
        other = layer_of(name)
        if own and other and (LAYERS.index(other) > LAYERS.index(own) or (own, other) in SEPARATE):
            problems.append(where + f"{other} is below {own} in the layers")
    return problems


def main() -> int:
    """Prints the problems; 1 if there are any."""
    files = [
        p for d in ("include", "src") for p in (ROOT / d).rglob("*") if p.suffix in (".h", ".cpp", ".cu")
    ]
    problems = [problem for path in sorted(files) for problem in check(path)]
    print("\n".join(problems) if problems else f"{len(files)} files: includes go one way")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
