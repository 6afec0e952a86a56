"""Containers made by hand, without the code under test."""

from __future__ import annotations

import copy
import json
import struct
from typing import Any

DELETE = object()

ENGINE = b"engine-bytes"

# torch_tensorrt's writer, engine without alias: metadata of 254 bytes at 32, engine at 288.
UPSTREAM_TR01 = (
    b"TR01"
    b"\x20\x00\x00\x00"
    b"\xfe\x00\x00\x00"
    b"\x20\x01\x00\x00"
    b"\x0c\x00\x00\x00\x00\x00\x00\x00"
    b"\x01\x00\x00\x00\x00\x00\x00\x00"
    b'{"io_bindings":[{"name":"x","dtype":"","shape":[],"is_input":true},'
    b'{"name":"y","dtype":"","shape":[],"is_input":false}],"aliased_io":[],'
    b'"hardware_compatible":true,"device_id":1,"serialized_metadata":"{\\"a\\": \\"\\u00e9\\"}",'
    b'"target_platform":"linux_x86_64"}'
    b"\0\0"
    b"engine-bytes"
)

# The same from our writer: 294 bytes, engine at 336.
TR01 = (
    b"TR01"
    b"\x20\x00\x00\x00"
    b"\x26\x01\x00\x00"
    b"\x50\x01\x00\x00"
    b"\x0c\x00\x00\x00\x00\x00\x00\x00"
    b"\x01\x00\x00\x00\x00\x00\x00\x00"
    b'{"io_bindings":[{"name":"x","dtype":"","shape":[],"is_input":true},'
    b'{"name":"y","dtype":"","shape":[],"is_input":false}],"aliased_io":[],'
    b'"hardware_compatible":true,"device_id":1,"serialized_metadata":"{\\"a\\": \\"\\u00e9\\"}",'
    b'"target_platform":"linux_x86_64","engine_digest":"xxh3:2b4069c87f9d3f99"}'
    b"\0\0\0\0\0\0\0\0\0\0"
    b"engine-bytes"
)

# torch_tensorrt's writer, engine with aliases: 550 bytes, engine at 592.
UPSTREAM_TR02 = (
    b"TR02"
    b"\x20\x00\x00\x00"
    b"\x26\x02\x00\x00"
    b"\x50\x02\x00\x00"
    b"\x08\x00\x00\x00\x00\x00\x00\x00"
    b"\x01\x00\x00\x00\x00\x00\x00\x00"
    b'{"io_bindings":[{"name":"x","dtype":"","shape":[],"is_input":true},'
    b'{"name":"in_k","dtype":"","shape":[],"is_input":true},'
    b'{"name":"in_u","dtype":"","shape":[],"is_input":true},'
    b'{"name":"y","dtype":"","shape":[],"is_input":false},'
    b'{"name":"out_k","dtype":"","shape":[],"is_input":false},'
    b'{"name":"out_u","dtype":"","shape":[],"is_input":false}],'
    b'"aliased_io":[{"output":"out_k","input":"in_k","kind":"kv_cache_update"},'
    b'{"output":"out_u","input":"in_u","kind":"user"}],'
    b'"hardware_compatible":false,"device_id":0,"serialized_metadata":"","target_platform":""}'
    b"\0\0\0\0\0\0\0\0\0\0"
    b"\x00\x01\x02\x03\x04\x05\x06\x07"
)

# The same from our writer: 590 bytes, engine at 624.
TR02 = (
    b"TR02"
    b"\x20\x00\x00\x00"
    b"\x4e\x02\x00\x00"
    b"\x70\x02\x00\x00"
    b"\x08\x00\x00\x00\x00\x00\x00\x00"
    b"\x01\x00\x00\x00\x00\x00\x00\x00"
    b'{"io_bindings":[{"name":"x","dtype":"","shape":[],"is_input":true},'
    b'{"name":"in_k","dtype":"","shape":[],"is_input":true},'
    b'{"name":"in_u","dtype":"","shape":[],"is_input":true},'
    b'{"name":"y","dtype":"","shape":[],"is_input":false},'
    b'{"name":"out_k","dtype":"","shape":[],"is_input":false},'
    b'{"name":"out_u","dtype":"","shape":[],"is_input":false}],'
    b'"aliased_io":[{"output":"out_k","input":"in_k","kind":"kv_cache_update"},'
    b'{"output":"out_u","input":"in_u","kind":"user"}],'
    b'"hardware_compatible":false,"device_id":0,"serialized_metadata":"","target_platform":"",'
    b'"engine_digest":"xxh3:3a1c2d7c85af88f8"}'
    b"\0\0"
    b"\x00\x01\x02\x03\x04\x05\x06\x07"
)

# A KV cache and a convolution's state that the session owns, and a cache that the caller owns:
# 1473 bytes, engine at 1520.
TR03 = (
    b"TR03"
    b"\x20\x00\x00\x00"
    b"\xc1\x05\x00\x00"
    b"\xf0\x05\x00\x00"
    b"\x0c\x00\x00\x00\x00\x00\x00\x00"
    b"\x01\x00\x00\x00\x00\x00\x00\x00"
    b'{"io_bindings":[{"name":"tokens","dtype":"int64","shape":[1,-1],"is_input":true},'
    b'{"name":"position","dtype":"int64","shape":[1],"is_input":true},'
    b'{"name":"k","dtype":"float32","shape":[1,2,8,4],"is_input":true},'
    b'{"name":"conv","dtype":"float32","shape":[1,3,4],"is_input":true},'
    b'{"name":"cache","dtype":"float16","shape":[1,4],"is_input":true},'
    b'{"name":"logits","dtype":"float32","shape":[1,10],"is_input":false},'
    b'{"name":"k_out","dtype":"float32","shape":[1,2,8,4],"is_input":false},'
    b'{"name":"conv_out","dtype":"float32","shape":[1,3,4],"is_input":false},'
    b'{"name":"cache_out","dtype":"float16","shape":[1,4],"is_input":false}],'
    b'"aliased_io":[{"output":"k_out","input":"k","kind":"kv_cache_update",'
    b'"ownership":"session","state":"layers.0.k"},'
    b'{"output":"cache_out","input":"cache","kind":"user","ownership":"caller","state":""}],'
    b'"hardware_compatible":false,"device_id":0,"serialized_metadata":"","target_platform":"",'
    b'"engine":"cpu","engine_entry":"decode","engine_digest":"xxh3:2b4069c87f9d3f99","engine_key":"",'
    b'"model_id":"toy",'
    b'"states":[{"id":"layers.0.k","input":"k","output":"k_out","update":"in_place",'
    b'"ownership":"session","dtype":"float32","shape":[1,2,8,4],"sequence_dim":2,'
    b'"initial_key":"initial.k","initial_length":3},'
    b'{"id":"layers.0.conv","input":"conv","output":"conv_out","update":"swap",'
    b'"ownership":"session","dtype":"float32","shape":[1,3,4],"sequence_dim":null,'
    b'"initial_key":"","initial_length":0}],'
    b'"position":{"input":"position","count":{"input":"tokens","dim":1}}}'
    b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    b"engine-bytes"
)

METADATA = json.loads(TR03[32 : 32 + 1473])
"""What TR03 says."""


def container(magic: str, metadata: Any, engine: bytes = ENGINE) -> bytes:
    """A container around ``metadata``: JSON text as bytes, or what is to be JSON."""
    text = metadata if isinstance(metadata, bytes) else json.dumps(metadata).encode()
    offset = (32 + len(text) + 15) // 16 * 16
    header = struct.pack("<4sIIIQ8s", magic.encode(), 32, len(text), offset, len(engine), bytes(8))
    return header + text + bytes(offset - 32 - len(text)) + engine


def changed(*edits: tuple[str, Any]) -> Any:
    """METADATA with edits: a path like "states.1.id", and what it is to be (DELETE: gone)."""
    result = copy.deepcopy(METADATA)
    for path, value in edits:
        *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
        item = result
        for part in parents:
            item = item[part]
        if value is DELETE:
            del item[last]
        else:
            item[last] = value
    return result
