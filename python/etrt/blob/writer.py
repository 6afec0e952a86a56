"""Blob -> container."""

from __future__ import annotations

import json
from typing import Any

from etrt.blob.container import digest, join
from etrt.blob.types import Blob, has_session
from etrt.blob.validate import validate


def write(blob: Blob) -> bytes:
    """The container for ``blob``; ``read`` reads whatever this writes.

    TR01 without aliases, TR02 if the caller owns all aliases and states, else TR03. Fills in the digest if
    there are engine bytes and no digest.

    Raises:
        BlobError: as ``read``.
    """
    validate(blob)
    magic = "TR03" if has_session(blob) else "TR02" if blob.aliases else "TR01"
    metadata = json.dumps(_metadata(blob, magic == "TR03"), separators=(",", ":")).encode()
    return join(magic, metadata, blob.engine)


def _metadata(blob: Blob, ours: bool) -> dict[str, Any]:
    """Upstream's keys in upstream's order, then ours: all in TR03, those that say something in TR01 and TR02."""
    data: dict[str, Any] = {
        "io_bindings": [
            {"name": b.name, "dtype": b.dtype, "shape": list(b.shape), "is_input": b.is_input}
            for b in blob.bindings
        ],
        "aliased_io": [
            {"output": a.output, "input": a.input, "kind": a.kind}
            | ({"ownership": a.ownership, "state": a.state} if ours else {})
            for a in blob.aliases
        ],
        "hardware_compatible": blob.hardware_compatible,
        "device_id": blob.device_id,
        "serialized_metadata": blob.serialized_metadata,
        "target_platform": blob.target_platform,
    }
    added: dict[str, Any] = {
        "engine": blob.engine_kind,
        "engine_entry": blob.engine_entry,
        "engine_digest": blob.engine_digest or (digest(blob.engine) if len(blob.engine) else ""),
        "engine_key": blob.engine_key,
        "model_id": blob.model_id,
        "states": [
            {
                "id": s.id,
                "input": s.input,
                "output": s.output,
                "update": s.update,
                "ownership": s.ownership,
                "dtype": s.dtype,
                "shape": list(s.shape),
                "sequence_dim": s.sequence_dim,
                "initial_key": s.initial_key,
                "initial_length": s.initial_length,
            }
            for s in blob.states
        ],
    }
    if ours:
        data |= added
    else:
        data |= {
            key: value for key, value in added.items() if value and (key, value) != ("engine", "tensorrt")
        }
    if blob.position is not None:
        count = blob.position.count
        data["position"] = {
            "input": blob.position.input,
            "count": {"input": count.input, "dim": count.dim} if count.input else {"value": count.value},
        }
    return data
