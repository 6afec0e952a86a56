"""A progress bar on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from etrt.progress import Progress as Listener


@contextmanager
def progress_bar(title: str) -> Iterator[Listener]:
    """What it yields is told the stage and the part that is done; without a terminal each stage is a line."""
    console = Console(stderr=True)
    if not console.is_terminal:
        last = ""

        def tell(stage: str, done: float) -> None:
            nonlocal last
            if stage != last:
                console.print(f"{title}: {stage} ({done:.0%})", highlight=False, soft_wrap=True)
                last = stage

        yield tell
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=1.0)
        yield lambda stage, done: progress.update(task, description=f"{title}: {stage}", completed=done)
