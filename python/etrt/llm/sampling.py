"""Choosing the next token."""

from __future__ import annotations

from collections.abc import Callable

import torch

Sampler = Callable[[torch.Tensor], int]
"""Logits float32 [1, vocabulary] -> token id."""


def greedy(logits: torch.Tensor) -> int:
    """The likeliest token."""
    return int(logits.argmax())


def top_p(temperature: float = 0.7, p: float = 0.9, seed: int | None = None) -> Sampler:
    """Draws among the likeliest tokens that together have probability ``p``. A seed makes it repeatable.

    Raises:
        ValueError: temperature isn't positive, or p isn't in (0, 1].
    """
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}; expected a positive number, or greedy choice")
    if not 0 < p <= 1:
        raise ValueError(f"top_p is {p}; expected more than 0 and at most 1")
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)

    def sample(logits: torch.Tensor) -> int:
        probabilities, ids = (logits.reshape(-1) / temperature).softmax(-1).sort(descending=True)
        before = probabilities.cumsum(0) - probabilities
        kept = probabilities.masked_fill(before >= p, 0.0)
        return int(ids[torch.multinomial(kept, 1, generator=generator)])

    return sample
