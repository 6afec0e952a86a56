"""Container -> Blob."""

from __future__ import annotations

from typing import Any

from etrt.blob.container import split
from etrt.blob.fields import REQUIRED, Fields, parse_json
from etrt.blob.types import (
    DTYPES,
    KINDS,
    OWNERSHIPS,
    UPDATES,
    Alias,
    Binding,
    Blob,
    BlobError,
    Count,
    Position,
    State,
    has_session,
)
from etrt.blob.validate import validate


def read(data: bytes | bytearray | memoryview) -> Blob:
    """Reads and checks a container; bytes after its engine are allowed.

    Raises:
        BlobError: anything that isn't as docs/blob_format.md says.
    """
    view = memoryview(data).cast("B")
    magic, metadata, engine = split(view)
    blob = _read_metadata(parse_json(bytes(metadata)), magic)
    blob.engine = bytes(engine)
    validate(blob)
    _check_version(blob)
    return blob


def _read_metadata(value: Any, magic: str) -> Blob:
    top = Fields(value, "")
    ours = magic == "TR03"

    def default(value: Any) -> Any:
        """Of a key that only TR03 must have."""
        return REQUIRED if ours else value

    blob = Blob(version=magic)
    for item in top.objects("io_bindings"):
        blob.bindings.append(
            Binding(
                name=item.get("name", str),
                dtype=item.word("dtype", ["", *DTYPES], ""),
                shape=item.shape("shape", []),
                is_input=item.get("is_input", bool),
            )
        )
    for item in top.objects("aliased_io", [] if magic == "TR01" else REQUIRED):
        blob.aliases.append(
            Alias(
                output=item.get("output", str),
                input=item.get("input", str),
                kind=item.word("kind", KINDS, default("kv_cache_update")),
                ownership=item.word("ownership", OWNERSHIPS, default("caller")),
                state=item.get("state", str, default("")),
            )
        )
    blob.hardware_compatible = top.get("hardware_compatible", bool, False)
    blob.device_id = top.integer("device_id", 32, 0)
    blob.serialized_metadata = top.get("serialized_metadata", str, "")
    blob.target_platform = top.get("target_platform", str, "")
    blob.engine_kind = top.get("engine", str, default("tensorrt"))
    blob.engine_entry = top.get("engine_entry", str, "")
    blob.engine_digest = top.get("engine_digest", str, "")
    blob.engine_key = top.get("engine_key", str, "")
    blob.model_id = top.get("model_id", str, "")
    for item in top.objects("states", default([])):
        blob.states.append(_read_state(item))
    if top.has("position"):
        blob.position = _read_position(Fields(top.get("position", dict), "position"))
    return blob


def _read_state(item: Fields) -> State:
    return State(
        id=item.get("id", str),
        input=item.get("input", str),
        output=item.get("output", str),
        update=item.word("update", UPDATES),
        ownership=item.word("ownership", OWNERSHIPS),
        dtype=item.word("dtype", list(DTYPES)),
        shape=item.shape("shape"),
        sequence_dim=_read_sequence_dim(item),
        initial_key=item.get("initial_key", str, ""),
        initial_length=item.integer("initial_length", 64, 0),
    )


def _read_sequence_dim(item: Fields) -> int | None:
    if item.is_null("sequence_dim"):
        return None
    dim = item.integer("sequence_dim", 32)
    if dim < 0:
        raise BlobError(f"{item.path('sequence_dim')}: {dim} is negative; null says that there is none")
    return dim


def _read_position(item: Fields) -> Position:
    name = item.get("input", str)
    count = Fields(item.get("count", dict), item.path("count"))
    if count.has("input") == count.has("value"):
        which = "both" if count.has("input") else "none"
        raise BlobError(f"{item.path('count')}: has {which} of input and value, expected one of them")
    if count.has("value"):
        return Position(name, Count(value=count.integer("value", 64)))
    source = count.get("input", str)
    if not source:
        raise BlobError(f"{count.path('input')}: is blank")
    return Position(name, Count(input=source, dim=count.integer("dim", 32)))


def _check_version(blob: Blob) -> None:
    """Whether the magic says of the metadata what it has to."""
    if blob.version == "TR03":
        if not has_session(blob):
            raise BlobError("states: none is owned by the session, which magic TR03 says")
        return
    if blob.version == "TR02" and not blob.aliases:
        raise BlobError("aliased_io: is empty, but magic TR02 says that there are aliases")
    for name, items in (("aliased_io", blob.aliases), ("states", blob.states)):
        for i, item in enumerate(items):
            if item.ownership == "session":
                raise BlobError(
                    f'{name}[{i}].ownership: "session" needs magic TR03, the blob has {blob.version}'
                )
