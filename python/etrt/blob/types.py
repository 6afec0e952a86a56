"""What a container says, and the words it says it in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

DTYPES = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float64": 8,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "bool": 1,
}
"""Name of an element type, as PyTorch spells it -> bytes."""

MAX_RANK = 8
KINDS = ("kv_cache_update", "user")
OWNERSHIPS = ("caller", "session")
UPDATES = ("in_place", "swap")


class BlobError(ValueError):
    """A container is truncated, corrupt or contradicts itself; the message names the field and says how."""


@dataclass
class Binding:
    """A named input or output of the engine."""

    name: str
    dtype: str
    """A key of DTYPES; "" if it isn't known."""
    shape: Sequence[int]
    """At most MAX_RANK extents, outermost first; -1: known only at run time. [] with dtype "": not known."""
    is_input: bool


@dataclass
class Alias:
    """An output that shares the memory of an input."""

    output: str
    input: str
    kind: str = "kv_cache_update"
    """``kv_cache_update``: the engine enforces it. ``user``: it doesn't know."""
    ownership: str = "caller"
    """Of the memory: ``caller`` or ``session``."""
    state: str = ""
    """Id of the state; "" where the caller owns it."""


@dataclass
class State:
    """A named tensor that outlives a run."""

    id: str
    input: str
    """The binding that reads it."""
    output: str
    """The binding that writes it; "" if this method only reads it."""
    update: str
    """``in_place``, or ``swap``: a whole new tensor is written beside the old one."""
    ownership: str
    """``caller`` or ``session``."""
    dtype: str
    shape: Sequence[int]
    """Static."""
    sequence_dim: int | None
    """The dim along which positions are appended; None if there is none."""
    initial_key: str = ""
    """Named-data key of the initial contents; "" for zeros."""
    initial_length: int = 0
    """Positions that are valid at the start."""


@dataclass
class Count:
    """How many positions one run appends: extent ``dim`` of ``input``, or ``value`` where ``input`` is ""."""

    input: str = ""
    dim: int = 0
    value: int = 1


@dataclass
class Position:
    """Where one run appends."""

    input: str
    """An int32 or int64 input: a scalar, one per batch row, or consecutive indices."""
    count: Count = field(default_factory=Count)


@dataclass
class Blob:
    """What a container says. ``version`` is what was read; ``write`` chooses its own."""

    bindings: list[Binding] = field(default_factory=list)
    aliases: list[Alias] = field(default_factory=list)
    hardware_compatible: bool = False
    device_id: int = 0
    serialized_metadata: str = ""
    target_platform: str = ""
    engine_kind: str = "tensorrt"
    engine_entry: str = ""
    """Which of the engine's entries this delegate runs."""
    engine_digest: str = ""
    """``digest`` of the engine's bytes; "" in files of others."""
    engine_key: str = ""
    """Named-data key of the engine; "" if the bytes are here."""
    model_id: str = ""
    states: list[State] = field(default_factory=list)
    position: Position | None = None
    engine: bytes = b""
    """Serialized bytes; empty if engine_key is set."""
    version: str = field(default="", compare=False)


def has_session(blob: Blob) -> bool:
    """Whether a session owns any memory of the delegate."""
    return any(item.ownership == "session" for item in [*blob.aliases, *blob.states])


def shape_known(binding: Binding) -> bool:
    """False for [] without a dtype, which upstream writes for every binding; with one it is a scalar."""
    return bool(binding.dtype) or len(binding.shape) > 0
