"""How far an export is, told from wherever the work is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[str, float], None]
"""Called with what is being done, and the part of the whole that is done, from 0 to 1."""

_listener: ContextVar[Progress | None] = ContextVar("etrt_progress", default=None)


def report(stage: str, done: float) -> None:
    """Tells the listener, if there is one. ``done``: the part of the current section, from 0 to 1."""
    listener = _listener.get()
    if listener is not None:
        listener(stage, min(max(done, 0.0), 1.0))


def listener() -> Progress | None:
    """What ``report`` tells: for threads that don't inherit it."""
    return _listener.get()


@contextmanager
def section(progress: Progress | None, low: float, high: float) -> Iterator[None]:
    """Reports made inside go to ``progress`` as the part of the whole from ``low`` to ``high``."""
    scaled = None if progress is None else lambda stage, done: progress(stage, low + (high - low) * done)
    token = _listener.set(scaled)
    try:
        yield
    finally:
        _listener.reset(token)
