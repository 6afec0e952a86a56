"""The bytes around metadata and engine: header, padding, digest."""

from __future__ import annotations

import struct

import xxhash

from etrt.blob.types import BlobError

_MAGICS = (b"TR01", b"TR02", b"TR03")
_HEADER = struct.Struct("<4sIIIQ8s")
_RESERVED = b"\x01" + bytes(7)
_ALIGNMENT = 16


def digest(data: bytes | memoryview) -> str:
    """``xxh3:<16 lowercase hex digits>``: XXH3-64 of ``data`` with seed 0."""
    return "xxh3:" + xxhash.xxh3_64_hexdigest(data)


def check_engine_digest(engine: bytes | memoryview, declared: str) -> None:
    """Raises BlobError unless ``declared`` is empty or the digest of ``engine``."""
    actual = digest(engine) if declared else ""
    if actual != declared:
        raise BlobError(
            f"engine_digest: {declared} is declared, but the {len(engine)} bytes of the engine have {actual}: "
            "the file is damaged"
        )


def split(view: memoryview) -> tuple[str, memoryview, memoryview]:
    """The magic, the metadata and the engine.

    Raises:
        BlobError: the header contradicts itself or the size.
    """
    size = len(view)
    if size < _HEADER.size:
        raise BlobError(f"blob: {size} bytes, but the header alone has {_HEADER.size}")
    magic, metadata_offset, metadata_size, engine_offset, engine_size, _ = _HEADER.unpack(
        view[: _HEADER.size]
    )
    if magic not in _MAGICS:
        shown = "".join(chr(b) if 0x20 <= b < 0x7F else f"\\x{b:02x}" for b in magic)
        raise BlobError(f'magic: "{shown}" is none of TR01, TR02, TR03')
    if metadata_offset < _HEADER.size:
        raise BlobError(
            f"metadata_offset: {metadata_offset} is inside the header, which ends at {_HEADER.size}"
        )
    metadata_end = metadata_offset + metadata_size
    if metadata_end > size:
        raise BlobError(
            f"metadata_size: {metadata_size} bytes at {metadata_offset} pass the blob's end at {size}"
        )
    if engine_offset % _ALIGNMENT:
        raise BlobError(f"engine_offset: {engine_offset} is no multiple of {_ALIGNMENT}")
    if engine_offset < metadata_end:
        raise BlobError(
            f"engine_offset: {engine_offset} is inside the metadata, which ends at {metadata_end}"
        )
    if engine_offset + engine_size > size:
        raise BlobError(f"engine_size: {engine_size} bytes at {engine_offset} pass the blob's end at {size}")
    return (
        magic.decode(),
        view[metadata_offset:metadata_end],
        view[engine_offset : engine_offset + engine_size],
    )


def join(magic: str, metadata: bytes, engine: bytes) -> bytes:
    """The container of the three. Raises BlobError for metadata of 4 GiB."""
    engine_offset = -(-(_HEADER.size + len(metadata)) // _ALIGNMENT) * _ALIGNMENT
    if engine_offset > 0xFFFFFFFF:
        raise BlobError(f"metadata_size: {len(metadata)} bytes don't fit in 32 bits")
    header = _HEADER.pack(magic.encode(), _HEADER.size, len(metadata), engine_offset, len(engine), _RESERVED)
    return b"".join([header, metadata, bytes(engine_offset - _HEADER.size - len(metadata)), engine])
