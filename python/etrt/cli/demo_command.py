"""``etrt demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from etrt.cli.options import CapacityOption, ModelOption, PrefillOption, WeightsOption

TALKS = (
    (
        "What is the capital of France?",
        "Name two things to see there.",
        "Which city did I ask about first?",
    ),
    (
        "What is a lighthouse for?",
        "Write one sentence about its keeper.",
        "Now say that in the past tense.",
    ),
)


def demo_command(
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of one reply.")] = 48,
    model: ModelOption = None,
    weights: WeightsOption = "int8",
    capacity: CapacityOption = 2048,
    prefill_tokens: PrefillOption = 128,
) -> None:
    """Hold two conversations at once on one program, token by token in turn."""
    from etrt.cli.loading import load_model
    from etrt.cli.memory import rss_bytes
    from etrt.cli.side_by_side import side_by_side
    from etrt.cli.summary import Memory, summary
    from etrt.llm.conversation import Conversation

    console = Console(highlight=False)
    language_model = load_model(model, weights, capacity, prefill_tokens)
    before = rss_bytes()
    conversations = [Conversation(language_model) for _ in TALKS]
    console.print(
        f"[bold]{language_model.info.name}[/bold], {language_model.info.weights} on engine "
        f"{language_model.info.engine}: {len(TALKS)} conversations, {len(TALKS[0])} turns each, in turn token by token"
    )
    side_by_side(console, conversations, TALKS, max_new_tokens)
    after = rss_bytes()
    memory = None if before is None or after is None else Memory(before, after)
    console.print(summary(conversations, Path(language_model.path), memory))
