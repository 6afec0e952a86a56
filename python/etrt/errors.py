"""Errors of the ahead-of-time side."""

from __future__ import annotations


class ExportError(ValueError):
    """A model can't be exported as asked; the message says what was wrong and what to do about it."""


class EtrtError(RuntimeError):
    """An error of the run time.

    ``code`` names its kind: ``InvalidArgument``, ``InvalidData``, ``Unsupported``, ``NotFound``, ``NoSession``,
    ``Busy``, ``Failed``, ``OutOfRange``, ``OutOfMemory``, ``Device`` or ``Internal``.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code
