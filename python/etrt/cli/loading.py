"""The program that a command runs."""

from __future__ import annotations

import sys
from pathlib import Path

from etrt.llm.model import LanguageModel
from etrt.llm.store import find_program, make_program


def load_model(path: Path | None, weights: str, capacity: int, prefill_tokens: int) -> LanguageModel:
    """``path``, or SmolLM2 with these settings, exported first if it isn't there yet.

    Raises:
        EtrtError, OSError: see LanguageModel and make_program.
    """
    if path is None:
        path, there = find_program(weights, "cpu", capacity, prefill_tokens)
        if not there:
            print("exporting the model; this is done once and takes some minutes", file=sys.stderr)
            make_program(path, weights, "cpu", capacity, prefill_tokens)
    return LanguageModel(path)
