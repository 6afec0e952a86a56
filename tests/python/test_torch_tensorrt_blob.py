"""torch_tensorrt's own serializer reads what etrt.blob writes, and the reverse."""

from __future__ import annotations

import importlib.util
import json
import struct
import sys
from pathlib import Path
from types import ModuleType

import pytest
from etrt import blob

ENGINE = bytes(range(256)) * 3 + b"\x00tail"


def _load() -> ModuleType:
    """The serializer alone: its package defines a second ``TensorRTBackend`` when it is imported."""
    package = importlib.util.find_spec("torch_tensorrt")
    assert package is not None and package.origin is not None, "torch-tensorrt-rtx isn't installed"
    path = Path(package.origin).parent / "executorch" / "serialization.py"
    spec = importlib.util.spec_from_file_location("torch_tensorrt_serialization", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


upstream = _load()


def _contents(aliased: bool, name: str = "tokens"):
    """The same content for both: theirs, ours."""
    bindings = [
        (name, "int64", [1, -1], True),
        ("cache", "float16", [1, 2, 64, 8], True),
        ("logits", "", [], False),
        ("cache_out", "float16", [1, 2, 64, 8], False),
    ]
    theirs = upstream.TensorRTBlobMetadata(
        io_bindings=[upstream.TensorRTIOBinding(*binding) for binding in bindings],
        aliased_io={"cache_out": ("cache", "user")} if aliased else {},
        hardware_compatible=True,
        device_id=1,
        serialized_metadata='{"a": "b\\u00e9\\n"}',
        target_platform="linux_x86_64",
    )
    ours = blob.Blob(
        bindings=[blob.Binding(*binding) for binding in bindings],
        aliases=[blob.Alias("cache_out", "cache", "user")] if aliased else [],
        hardware_compatible=True,
        device_id=1,
        serialized_metadata='{"a": "b\\u00e9\\n"}',
        target_platform="linux_x86_64",
        engine=ENGINE,
    )
    return theirs, ours


def _split(data: bytes) -> tuple[bytes, bytes]:
    """JSON text and the rest after it, of a container whose JSON begins at 32."""
    size = struct.unpack_from("<I", data, 8)[0]
    return data[32 : 32 + size], data[32 + size :]


@pytest.mark.parametrize("aliased", [False, True], ids=["TR01", "TR02"])
def test_we_read_what_torch_tensorrt_writes(aliased: bool):
    theirs, ours = _contents(aliased)
    read = blob.read(upstream.serialize_engine(ENGINE, theirs))
    assert read.version == ("TR02" if aliased else "TR01")
    assert read == ours


@pytest.mark.parametrize("aliased", [False, True], ids=["TR01", "TR02"])
def test_torch_tensorrt_reads_what_we_write(aliased: bool):
    theirs, ours = _contents(aliased)
    written = blob.write(ours)
    assert b'"engine_digest":"xxh3:' in written  # The key that its reader doesn't know.
    engine, metadata = upstream.deserialize_engine(written)
    assert engine == ENGINE
    assert metadata == theirs


@pytest.mark.parametrize(
    "name", ["tokens", 'quo"te\\slash', "größe \U0001f600", "a" * 14, "a" * 15, "a" * 16]
)
@pytest.mark.parametrize("aliased", [False, True], ids=["TR01", "TR02"])
def test_same_bytes_but_for_the_digest(aliased: bool, name: str):
    theirs, ours = _contents(aliased, name)
    expected = upstream.serialize_engine(ENGINE, theirs)
    written = blob.write(ours)

    text, rest = _split(written)
    digest = f',"engine_digest":"{blob.digest(ENGINE)}"'.encode()
    assert text.count(digest) == 1
    text = text.replace(digest, b"")
    assert text == _split(expected)[0]
    # The container around it, with the key gone, is theirs byte for byte.
    offset = (32 + len(text) + 15) // 16 * 16
    header = written[:8] + struct.pack("<II", len(text), offset) + written[16:32]
    assert header + text + bytes(offset - 32 - len(text)) + rest[-len(ENGINE) :] == expected


def test_torch_tensorrt_refuses_sessions():
    _, ours = _contents(False)
    cache = ours.bindings[1]
    state = blob.State("k", "cache", "cache_out", "swap", "session", cache.dtype, cache.shape, None)
    ours.states, ours.model_id = [state], "m"
    with pytest.raises(ValueError, match="Invalid magic: b'TR03'"):
        upstream.deserialize_engine(blob.write(ours))


@pytest.mark.parametrize(
    "patch",
    [
        lambda b: b[:31],
        lambda b: b"TR04" + b[4:],
        lambda b: b[:4] + struct.pack("<I", 31) + b[8:],
        lambda b: b[:12] + struct.pack("<I", struct.unpack_from("<I", b, 12)[0] + 1) + b[16:],
        lambda b: b[:12] + struct.pack("<I", 16) + b[16:],
        lambda b: b[:-1],
        lambda b: b[:8] + struct.pack("<I", 1 << 30) + b[12:],
    ],
    ids=["short", "magic", "in header", "unaligned", "overlap", "truncated", "past end"],
)
def test_both_refuse(patch):
    theirs, ours = _contents(True)
    for written in (upstream.serialize_engine(ENGINE, theirs), blob.write(ours)):
        with pytest.raises(ValueError):
            upstream.deserialize_engine(patch(written))
        with pytest.raises(blob.BlobError):
            blob.read(patch(written))


def test_defaults_are_alike():
    for data in ({"io_bindings": []}, {"io_bindings": [], "aliased_io": []}):
        text = json.dumps(data).encode()
        padded = text + b" " * (-len(text) % 16)
        written = (
            struct.pack("<4sIIIQ8s", b"TR01", 32, len(padded), 32 + len(padded), 4, bytes(8))
            + padded
            + b"plan"
        )
        engine, metadata = upstream.deserialize_engine(written)
        read = blob.read(written)
        assert (engine, metadata.aliased_io, metadata.device_id) == (b"plan", {}, 0)
        assert (read.engine, read.aliases, read.device_id) == (b"plan", [], 0)
        assert (read.hardware_compatible, read.serialized_metadata, read.target_platform) == (
            metadata.hardware_compatible,
            metadata.serialized_metadata,
            metadata.target_platform,
        )
