"""The real model's program for tests: exported once, kept in build/models until etrt changes."""

from __future__ import annotations

import os
from pathlib import Path

from etrt.llm.store import find_program, make_program

FOLDER = Path(__file__).parents[2] / "build" / "models"


def program(weights: str = "fp32", capacity: int = 2048, prefill_tokens: int = 128) -> Path:
    """The path of the program, which is there when this returns."""
    os.environ["ETRT_CACHE"] = str(FOLDER)
    path, there = find_program(weights, "cpu", capacity, prefill_tokens)
    if not there:
        make_program(path, weights, "cpu", capacity, prefill_tokens)
    return path
