"""Conversations advanced in turn and shown as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from etrt.llm.conversation import Conversation


def side_by_side(
    console: Console,
    conversations: Sequence[Conversation],
    talks: Sequence[Sequence[str]],
    max_new_tokens: int,
) -> None:
    """Says ``talks[i]`` turn by turn in conversation i, one token of each after the other.

    Without a terminal a turn is printed when all have ended it.
    """
    for turn in zip(*talks, strict=True):
        columns = [Text(f"> {said}\n", style="bold") for said in turn]
        replies = [c.say(said, max_new_tokens) for c, said in zip(conversations, turn, strict=True)]
        if console.is_terminal:
            with Live(_row(columns), console=console, refresh_per_second=12) as live:
                for _ in _advance(replies, columns):
                    live.update(_row(columns))
        else:
            for _ in _advance(replies, columns):
                pass
            console.print(_row(columns))


def _advance(replies: Sequence[Iterator[str]], columns: Sequence[Text]) -> Iterator[None]:
    for pieces in zip_longest(*replies, fillvalue=""):
        for column, piece in zip(columns, pieces, strict=True):
            column.append(piece)
        yield


def _row(columns: Sequence[Text]) -> Table:
    table = Table.grid(expand=True, padding=(0, 2))
    for _ in columns:
        table.add_column(ratio=1)
    table.add_row(*columns)
    return table
