"""What a program (.pte) has for TensorRTBackend: delegates, engines, states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from executorch.exir._serialize._program import PTEFile, deserialize_pte_binary
from executorch.exir.schema import BackendDelegate, DataLocation

from etrt import blob
from etrt.errors import EtrtError

BACKEND = "TensorRTBackend"
_MAGIC = slice(4, 8)  # Of a flatbuffer.


@dataclass(frozen=True)
class Delegate:
    """One delegate of a method."""

    method: str
    backend: str
    bytes: int
    """Of what the program has for it, an engine in named data not included."""
    blob: blob.Blob | None
    """None for another backend's."""


@dataclass(frozen=True)
class Inspected:
    """What there is in a file."""

    path: Path
    bytes: int
    methods: list[str]
    delegates: list[Delegate] = field(default_factory=list)
    named_data: dict[str, int] = field(default_factory=dict)
    """Key -> bytes."""

    def ours(self) -> list[Delegate]:
        """The delegates that this package runs."""
        return [delegate for delegate in self.delegates if delegate.blob is not None]

    def engine_bytes(self, of: blob.Blob) -> int:
        """Size of a delegate's engine; 0 if it is missing."""
        return self.named_data.get(of.engine_key, 0) if of.engine_key else len(of.engine)


def inspect(path: str | Path) -> Inspected:
    """Reads a program's own description; runs nothing.

    Raises:
        FileNotFoundError: no such file.
        EtrtError: ``InvalidData``: it is no program, truncated, or a delegate in it is corrupt; the message says which.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    data = path.read_bytes()
    if not data[_MAGIC].startswith(b"ET"):
        raise EtrtError(
            f"{path} is no ExecuTorch program: it has no program identifier at byte 4", "InvalidData"
        )
    try:
        file = deserialize_pte_binary(data)
        return Inspected(
            path,
            len(data),
            [plan.name for plan in file.program.execution_plan],
            list(_delegates(file)),
            _named_data(file),
        )
    except blob.BlobError as error:
        raise EtrtError(f"{path}: {error}", "InvalidData") from error
    except Exception as error:
        # ExecuTorch's reader has no error of its own: what a damaged file raises is what it happens to break.
        raise EtrtError(
            f"{path} is truncated or damaged ({type(error).__name__}: {error}): export it again",
            "InvalidData",
        ) from error


def _delegates(file: PTEFile) -> Iterator[Delegate]:
    for plan in file.program.execution_plan:
        for index, delegate in enumerate(plan.delegates):
            data = _processed(file, delegate)
            content = None
            if delegate.id == BACKEND:
                try:
                    content = blob.read(data)
                except blob.BlobError as error:
                    raise blob.BlobError(f"delegate {index} of method {plan.name!r}: {error}") from error
            yield Delegate(plan.name, delegate.id, len(data), content)


def _processed(file: PTEFile, delegate: BackendDelegate) -> bytes:
    if delegate.processed.location != DataLocation.INLINE:
        raise ValueError(f"delegate {delegate.id} is in a segment that isn't there")
    return bytes(file.program.backend_delegate_data[delegate.processed.index].data)


def _named_data(file: PTEFile) -> dict[str, int]:
    if file.named_data is None:
        return {}
    buffers = file.named_data.buffers
    return {key: len(buffers[entry.buffer_index]) for key, entry in file.named_data.pte_data.items()}


def as_json(found: Inspected) -> dict[str, Any]:
    """Plain lists and dicts of ``found``."""
    return {
        "file": str(found.path),
        "bytes": found.bytes,
        "methods": found.methods,
        "delegates": [_delegate_json(found, delegate) for delegate in found.delegates],
        "named_data": found.named_data,
    }


def _delegate_json(found: Inspected, delegate: Delegate) -> dict[str, Any]:
    about: dict[str, Any] = {"method": delegate.method, "backend": delegate.backend, "bytes": delegate.bytes}
    content = delegate.blob
    if content is None:
        return about
    position = content.position
    return about | {
        "blob_version": content.version,
        "engine": content.engine_kind,
        "engine_entry": content.engine_entry,
        "engine_key": content.engine_key,
        "engine_digest": content.engine_digest,
        "engine_bytes": found.engine_bytes(content),
        "model_id": content.model_id,
        "bindings": [vars(binding) for binding in content.bindings],
        "aliases": [vars(alias) for alias in content.aliases],
        "states": [vars(state) | {"bytes": state_bytes(state)} for state in content.states],
        "position": None if position is None else {"input": position.input, "count": vars(position.count)},
    }


def state_bytes(state: blob.State) -> int:
    """Memory of one copy of a state; one that swaps has two."""
    size = blob.DTYPES[state.dtype]
    for extent in state.shape:
        size *= extent
    return size
