"""Programs made on first use, kept for the next."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import xxhash

from etrt.errors import EtrtError


def cache_folder() -> Path:
    """$ETRT_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("ETRT_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "etrt"


def find_program(weights: str, engine: str, capacity: int, prefill_tokens: int) -> tuple[Path, bool]:
    """Where SmolLM2's program with these settings is or will be; whether it is there.

    A change of this package or of ExecuTorch gives another name, so that an old program isn't taken for a new one.
    """
    folder = cache_folder()
    path = folder / f"smollm2-{weights}-{engine}-{capacity}-{prefill_tokens}-{_digest()}.pte"
    return path, path.is_file()


def make_program(path: Path, weights: str, engine: str, capacity: int, prefill_tokens: int) -> None:
    """Exports to ``path``, in a process of its own, so that the export's memory goes with it.

    Raises:
        EtrtError: it failed; the text on stderr says why.
        OSError: the folder can't be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob(path.name.replace(_digest(), "*").removesuffix(".pte") + ".*"):
        old.unlink()
    settings = {
        "--weights": weights,
        "--engine": engine,
        "--capacity": str(capacity),
        "--prefill-tokens": str(prefill_tokens),
    }
    command = [sys.executable, "-m", "etrt.cli", "export", "smollm2", "-o", str(path)]
    command += [part for option in settings.items() for part in option]
    done = subprocess.run(command, stdout=sys.stderr.fileno(), check=False)
    if done.returncode != 0 or not path.is_file():
        raise EtrtError("the model couldn't be exported; the lines above say why", "Failed")


def _digest() -> str:
    hasher = xxhash.xxh3_64(importlib.metadata.version("executorch").encode())
    package = Path(__file__).parents[1]
    for file in sorted(package.rglob("*.py")):
        if "cli" not in file.parts:
            hasher.update(file.read_bytes())
    return hasher.hexdigest()[:8]
