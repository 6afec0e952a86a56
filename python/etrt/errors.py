"""Errors of the ahead-of-time side."""

from __future__ import annotations


class ExportError(ValueError):
    """A model can't be exported as asked; the message says what was wrong and what to do about it."""
