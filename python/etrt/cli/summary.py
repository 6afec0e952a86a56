"""The figures at the end of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from etrt.llm.conversation import Conversation
from etrt.runtime import stats


@dataclass(frozen=True)
class Memory:
    """Resident bytes before the first run, when no weight was read yet, and after the last."""

    before: int
    after: int


def summary(conversations: Sequence[Conversation], program: Path, memory: Memory | None) -> Table:
    """What was measured; nothing in it is assumed."""
    counters = stats()
    speeds = [conversation.speed for conversation in conversations]
    table = Table(title="measured", title_justify="left", show_header=False)
    table.add_row(
        "prefill", _rate(sum(s.prefill_tokens for s in speeds), sum(s.prefill_seconds for s in speeds))
    )
    table.add_row(
        "decode", _rate(sum(s.decode_tokens for s in speeds), sum(s.decode_seconds for s in speeds))
    )
    for index, conversation in enumerate(conversations, 1):
        session = conversation.session
        table.add_row(
            f"session {index}",
            f"{_size(session.bytes())}, {session.length()} positions; each was read or generated once: "
            f"{conversation.speed.prefill_tokens} + {conversation.speed.decode_tokens}",
        )
    table.add_row("KV bytes copied", str(counters["kv_bytes_copied"]))
    table.add_row(
        "weights",
        f"{counters['engines']} engine for both methods and all sessions, of {_size(counters['engine_bytes'])}",
    )
    if memory is not None:
        grown, size = memory.after - memory.before, program.stat().st_size
        table.add_row(
            "memory",
            f"grew by {_size(grown)} from the first run to the last, what the sessions use included: "
            f"{grown / size:.2f} times the program",
        )
    return table


def _rate(tokens: int, seconds: float) -> str:
    return (
        f"{tokens / seconds:.1f} tokens/s ({tokens} tokens in {seconds:.1f} s)" if seconds else "nothing run"
    )


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
