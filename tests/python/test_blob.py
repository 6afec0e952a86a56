"""The container in Python. test_blob_languages.py compares it with the C++ one."""

from __future__ import annotations

import json
import struct

import pytest
from containers import (
    DELETE,
    ENGINE,
    METADATA,
    TR01,
    TR02,
    TR03,
    UPSTREAM_TR01,
    UPSTREAM_TR02,
    changed,
    container,
)
from etrt import blob

NUMBERS = bytes(range(8))


def tr01(digest: str) -> blob.Blob:
    return blob.Blob(
        bindings=[blob.Binding("x", "", [], True), blob.Binding("y", "", [], False)],
        hardware_compatible=True,
        device_id=1,
        serialized_metadata='{"a": "é"}',
        target_platform="linux_x86_64",
        engine_digest=digest,
        engine=ENGINE,
    )


def tr02(digest: str) -> blob.Blob:
    return blob.Blob(
        bindings=[blob.Binding(name, "", [], True) for name in ("x", "in_k", "in_u")]
        + [blob.Binding(name, "", [], False) for name in ("y", "out_k", "out_u")],
        aliases=[blob.Alias("out_k", "in_k", "kv_cache_update"), blob.Alias("out_u", "in_u", "user")],
        engine_digest=digest,
        engine=NUMBERS,
    )


def tr03(digest: str) -> blob.Blob:
    return blob.Blob(
        bindings=[
            blob.Binding("tokens", "int64", [1, -1], True),
            blob.Binding("position", "int64", [1], True),
            blob.Binding("k", "float32", [1, 2, 8, 4], True),
            blob.Binding("conv", "float32", [1, 3, 4], True),
            blob.Binding("cache", "float16", [1, 4], True),
            blob.Binding("logits", "float32", [1, 10], False),
            blob.Binding("k_out", "float32", [1, 2, 8, 4], False),
            blob.Binding("conv_out", "float32", [1, 3, 4], False),
            blob.Binding("cache_out", "float16", [1, 4], False),
        ],
        aliases=[
            blob.Alias("k_out", "k", "kv_cache_update", "session", "layers.0.k"),
            blob.Alias("cache_out", "cache", "user", "caller", ""),
        ],
        engine_kind="cpu",
        engine_entry="decode",
        engine_digest=digest,
        model_id="toy",
        states=[
            blob.State(
                "layers.0.k",
                "k",
                "k_out",
                "in_place",
                "session",
                "float32",
                [1, 2, 8, 4],
                2,
                "initial.k",
                3,
            ),
            blob.State("layers.0.conv", "conv", "conv_out", "swap", "session", "float32", [1, 3, 4], None),
        ],
        position=blob.Position("position", blob.Count("tokens", 1)),
        engine=ENGINE,
    )


DIGEST = "xxh3:2b4069c87f9d3f99"
GOLDEN = {
    "upstream TR01": (UPSTREAM_TR01, tr01(""), TR01),
    "TR01": (TR01, tr01(DIGEST), TR01),
    "upstream TR02": (UPSTREAM_TR02, tr02(""), TR02),
    "TR02": (TR02, tr02("xxh3:3a1c2d7c85af88f8"), TR02),
    "TR03": (TR03, tr03(DIGEST), TR03),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes_are_read(name):
    data, says, _ = GOLDEN[name]
    read = blob.read(data)
    assert read == says
    assert read.version == data[:4].decode()
    assert blob.read(bytearray(data)) == blob.read(memoryview(data)) == says


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes_are_written(name):
    _, says, rewritten = GOLDEN[name]
    assert blob.write(says) == rewritten


def test_golden_bytes_without_digest_get_one():
    says = tr03("")
    assert blob.write(says) == TR03
    assert says.engine_digest == "", "writing changes nothing in the Blob"


K = METADATA["io_bindings"][2]
SESSION = {"ownership": "session", "state": "layers.0.v"}
CALLER_K = {"output": "k_out", "input": "k", "kind": "user", "ownership": "caller", "state": ""}
DTYPES = "float32, float16, bfloat16, float64, int8, uint8, int16, int32, int64, bool"

# (edits of TR03's metadata), message.
DEFECTS = [
    # Bindings.
    ([("io_bindings", DELETE)], "io_bindings: is missing"),
    ([("io_bindings.2", 7)], "io_bindings[2]: is an integer, expected an object"),
    ([("io_bindings.2.name", DELETE)], "io_bindings[2].name: is missing"),
    ([("io_bindings.2.name", None)], "io_bindings[2].name: is null, expected a string"),
    ([("io_bindings.2.name", "")], "io_bindings[2].name: is blank"),
    ([("io_bindings.2.name", " \t")], "io_bindings[2].name: is blank"),
    ([("io_bindings.2.name", "k\0")], "io_bindings[2].name: has a NUL in it"),
    ([("io_bindings.3.name", "k")], 'io_bindings[3].name: "k" is the name of io_bindings[2] already'),
    ([("io_bindings.7.name", "k")], 'io_bindings[7].name: "k" is the name of io_bindings[2] already'),
    ([("io_bindings.2.dtype", "half")], f'io_bindings[2].dtype: "half" is none of {DTYPES}'),
    ([("io_bindings.2.dtype", 1)], "io_bindings[2].dtype: is an integer, expected a string"),
    ([("io_bindings.2.shape", "1")], "io_bindings[2].shape: is a string, expected an array"),
    ([("io_bindings.2.shape", [1] * 9)], "io_bindings[2].shape: has rank 9, at most 8 is possible"),
    (
        [("io_bindings.2.shape", [1, 2, 8.0, 4])],
        "io_bindings[2].shape[2]: is a number, expected an integer",
    ),
    ([("io_bindings.2.shape.2", True)], "io_bindings[2].shape[2]: is a boolean, expected an integer"),
    (
        [("io_bindings.2.shape", [1, -2])],
        "io_bindings[2].shape[1]: -2 is negative; -1 says that it isn't known",
    ),
    (
        [("io_bindings.2.shape", [2**63])],
        "io_bindings[2].shape[0]: 9223372036854775808 is outside int64",
    ),
    (
        [("io_bindings.2.shape", [2**32, 2**32])],
        "io_bindings[2].shape: [4294967296, 4294967296] is too large",
    ),
    ([("io_bindings.2.is_input", DELETE)], "io_bindings[2].is_input: is missing"),
    ([("io_bindings.2.is_input", 1)], "io_bindings[2].is_input: is an integer, expected a boolean"),
    # Aliases.
    ([("aliased_io", DELETE)], "aliased_io: is missing"),
    ([("aliased_io.1", [])], "aliased_io[1]: is an array, expected an object"),
    ([("aliased_io.1.output", DELETE)], "aliased_io[1].output: is missing"),
    ([("aliased_io.1.input", DELETE)], "aliased_io[1].input: is missing"),
    ([("aliased_io.1.kind", DELETE)], "aliased_io[1].kind: is missing"),
    ([("aliased_io.1.ownership", DELETE)], "aliased_io[1].ownership: is missing"),
    ([("aliased_io.1.state", DELETE)], "aliased_io[1].state: is missing"),
    ([("aliased_io.1.kind", "User")], 'aliased_io[1].kind: "User" is none of kv_cache_update, user'),
    (
        [("aliased_io.1.ownership", "delegate")],
        'aliased_io[1].ownership: "delegate" is none of caller, session',
    ),
    ([("aliased_io.1.output", "cache_o")], 'aliased_io[1].output: "cache_o" is none of io_bindings'),
    ([("aliased_io.1.output", "")], "aliased_io[1].output: is blank"),
    (
        [("aliased_io.1.output", "tokens")],
        'aliased_io[1].output: "tokens" is an input, expected an output',
    ),
    ([("aliased_io.1.input", "cached")], 'aliased_io[1].input: "cached" is none of io_bindings'),
    ([("aliased_io.1.input", " ")], "aliased_io[1].input: is blank"),
    (
        [("aliased_io.1.input", "logits")],
        'aliased_io[1].input: "logits" is an output, expected an input',
    ),
    ([("aliased_io.1.output", "k_out")], 'aliased_io[1].output: "k_out" is in aliased_io[0] already'),
    ([("aliased_io.1.input", "k")], 'aliased_io[1].input: "k" is in aliased_io[0] already'),
    (
        [("io_bindings.8.dtype", "bfloat16")],
        'aliased_io[1]: output "cache_out" is bfloat16, but input "cache" is float16',
    ),
    (
        [("io_bindings.8.shape", [1, -1])],
        'aliased_io[1]: output "cache_out" is [1, ?], but input "cache" is [1, 4]',
    ),
    (
        [("aliased_io.1.state", "layers.0.conv")],
        'aliased_io[1].state: "layers.0.conv" is given, but the caller owns the memory',
    ),
    ([("aliased_io.1.ownership", "session")], "aliased_io[1].state: is blank"),
    (
        [("aliased_io.1", METADATA["aliased_io"][1] | SESSION)],
        'aliased_io[1].state: "layers.0.v" is none of the states',
    ),
    (
        [("aliased_io.1", METADATA["aliased_io"][1] | SESSION | {"state": "layers.0.conv"})],
        'aliased_io[1].state: joins output "cache_out" and input "cache", but states[1] has output '
        '"conv_out" and input "conv"',
    ),
    # Scalars.
    ([("hardware_compatible", "no")], "hardware_compatible: is a string, expected a boolean"),
    ([("device_id", "0")], "device_id: is a string, expected an integer"),
    ([("device_id", 0.0)], "device_id: is a number, expected an integer"),
    ([("device_id", 2**31)], "device_id: 2147483648 is outside int32"),
    ([("device_id", -(2**31) - 1)], "device_id: -2147483649 is outside int32"),
    ([("device_id", 2**64)], "device_id: is a number, expected an integer"),
    ([("serialized_metadata", {})], "serialized_metadata: is an object, expected a string"),
    ([("target_platform", None)], "target_platform: is null, expected a string"),
    ([("engine", DELETE)], "engine: is missing"),
    ([("engine", "")], "engine: is blank"),
    ([("engine_entry", 0)], "engine_entry: is an integer, expected a string"),
    (
        [("engine_digest", "sha256:2b4069c87f9d3f9")],
        'engine_digest: "sha256:2b4069c87f9d3f9" is not xxh3: and 16 lowercase hex digits',
    ),
    (
        [("engine_digest", DIGEST.upper())],
        'engine_digest: "XXH3:2B4069C87F9D3F99" is not xxh3: and 16 lowercase hex digits',
    ),
    (
        [("engine_digest", "xxh3:2b4069c87f9d3f98")],
        "engine_digest: xxh3:2b4069c87f9d3f98 is declared, but the 12 bytes of the engine have "
        "xxh3:2b4069c87f9d3f99: the file is damaged",
    ),
    (
        [("engine_key", "abc")],
        'engine_size: 12, but engine_key "abc" says that the bytes are elsewhere',
    ),
    ([("model_id", DELETE)], "model_id: is blank"),
    ([("model_id", "\n")], "model_id: is blank"),
    ([("model_id", ["toy"])], "model_id: is an array, expected a string"),
    # States.
    ([("states", DELETE)], "states: is missing"),
    ([("states.0", None)], "states[0]: is null, expected an object"),
    ([("states.1.id", DELETE)], "states[1].id: is missing"),
    ([("states.1.id", "")], "states[1].id: is blank"),
    ([("states.1.id", "layers.0.k")], 'states[1].id: "layers.0.k" is the id of states[0] already'),
    ([("states.1.input", DELETE)], "states[1].input: is missing"),
    ([("states.1.input", "")], "states[1].input: is blank"),
    ([("states.1.input", "con")], 'states[1].input: "con" is none of io_bindings'),
    ([("states.1.input", "conv_out")], 'states[1].input: "conv_out" is an output, expected an input'),
    ([("states.1.input", "k")], 'states[1].input: "k" belongs to states[0] already'),
    ([("states.1.output", DELETE)], "states[1].output: is missing"),
    ([("states.1.output", "tokens")], 'states[1].output: "tokens" is an input, expected an output'),
    ([("states.1.output", "none")], 'states[1].output: "none" is none of io_bindings'),
    ([("states.1.output", "k_out")], 'states[1].output: "k_out" belongs to states[0] already'),
    ([("states.1.update", "copy")], 'states[1].update: "copy" is none of in_place, swap'),
    (
        [("states.1.update", "in_place")],
        'states[1].update: "in_place", but no alias joins output "conv_out" and input "conv"',
    ),
    (
        [("states.0.update", "swap")],
        'states[0].update: "swap", but aliased_io[0] joins output "k_out" and input "k"',
    ),
    ([("states.1.ownership", "both")], 'states[1].ownership: "both" is none of caller, session'),
    (
        [("states.0.ownership", "caller")],
        'states[0].ownership: "caller" differs from "session" of aliased_io[0]',
    ),
    (
        [("aliased_io.0", CALLER_K)],
        'states[0].ownership: "session" differs from "caller" of aliased_io[0]',
    ),
    ([("states.1.dtype", "")], f'states[1].dtype: "" is none of {DTYPES}'),
    (
        [("states.1.dtype", "float16")],
        'states[1].dtype: float16 differs from float32 of binding "conv"',
    ),
    (
        [("states.1.shape", [1, 4, 3])],
        'states[1].shape: [1, 4, 3] differs from [1, 3, 4] of binding "conv"',
    ),
    (
        [("io_bindings.7.shape", [1, 3, -1])],
        'states[1].shape: [1, 3, 4] differs from [1, 3, ?] of binding "conv_out"',
    ),
    (
        [("io_bindings.7.dtype", "float16")],
        'states[1].dtype: float32 differs from float16 of binding "conv_out"',
    ),
    ([("states.1.shape", [1, 3, -1])], "states[1].shape: [1, 3, ?] has to be static and not empty"),
    ([("states.1.shape", [1, 3, 0])], "states[1].shape: [1, 3, 0] has to be static and not empty"),
    ([("states.1.shape", [1] * 9)], "states[1].shape: has rank 9, at most 8 is possible"),
    (
        [("states.1.shape", [2**61])],
        "states[1].shape: [2305843009213693952] of float32 is too large",
    ),
    ([("states.1.shape", DELETE)], "states[1].shape: is missing"),
    ([("states.0.sequence_dim", DELETE)], "states[0].sequence_dim: is missing"),
    ([("states.0.sequence_dim", 4)], "states[0].sequence_dim: 4 is no dim of [1, 2, 8, 4]"),
    (
        [("states.0.sequence_dim", -1)],
        "states[0].sequence_dim: -1 is negative; null says that there is none",
    ),
    ([("states.0.sequence_dim", 2**32 + 2)], "states[0].sequence_dim: 4294967298 is outside int32"),
    ([("states.0.sequence_dim", "2")], "states[0].sequence_dim: is a string, expected an integer"),
    ([("states.0.initial_key", None)], "states[0].initial_key: is null, expected a string"),
    (
        [("states.0.initial_length", 9)],
        "states[0].initial_length: 9 passes the capacity of 8 positions",
    ),
    ([("states.0.initial_length", -1)], "states[0].initial_length: -1 is negative"),
    ([("states.1.initial_length", -1)], "states[1].initial_length: -1 is negative"),
    # Position.
    ([("position", DELETE)], "position: is missing, but states[0] has a sequence_dim"),
    ([("position", None)], "position: is null, expected an object"),
    ([("position.input", DELETE)], "position.input: is missing"),
    ([("position.input", "pos")], 'position.input: "pos" is none of io_bindings'),
    ([("position.input", "logits")], 'position.input: "logits" is an output, expected an input'),
    (
        [("position.input", "conv")],
        'position.input: "conv" is states[1], expected an input of the method',
    ),
    ([("position.input", "cache")], 'position.input: "cache" is float16, expected int32 or int64'),
    (
        [("io_bindings.1", {"name": "position", "is_input": True})],
        'position.input: "position" is of unknown type, expected int32 or int64',
    ),
    (
        [("position.input", "tokens")],
        'position.input: "tokens" is [1, ?], expected a scalar, one position for each batch row, or '
        "consecutive indices",
    ),
    ([("position.count", DELETE)], "position.count: is missing"),
    ([("position.count", 1)], "position.count: is an integer, expected an object"),
    (
        [("position.count", {"dim": 1})],
        "position.count: has none of input and value, expected one of them",
    ),
    (
        [("position.count.value", 1)],
        "position.count: has both of input and value, expected one of them",
    ),
    ([("position.count.dim", DELETE)], "position.count.dim: is missing"),
    ([("position.count.input", "")], "position.count.input: is blank"),
    ([("position.count.input", "ids")], 'position.count.input: "ids" is none of io_bindings'),
    (
        [("position.count.input", "k_out")],
        'position.count.input: "k_out" is an output, expected an input',
    ),
    (
        [("position.count.input", "k")],
        'position.count.input: "k" is states[0], expected an input of the method',
    ),
    ([("position.count.dim", 2)], 'position.count.dim: 2 is no dim of [1, ?] of "tokens"'),
    ([("position.count.dim", -1)], 'position.count.dim: -1 is no dim of [1, ?] of "tokens"'),
    ([("position.count", {"value": 0})], "position.count.value: 0 is less than 1"),
    (
        [("position.count", {"value": "1"})],
        "position.count.value: is a string, expected an integer",
    ),
]

# Containers, message.
TWO = [{"name": "i", "is_input": True}, {"name": "o", "is_input": False}]
SWAPPED = {
    "io_bindings": TWO,
    "model_id": "m",
    "states": [
        {
            "id": "s",
            "input": "i",
            "output": "o",
            "update": "swap",
            "ownership": "session",
            "dtype": "bool",
            "shape": [1],
            "sequence_dim": None,
        }
    ],
}
REFUSED = [
    (
        container("TR03", {"io_bindings": [], "aliased_io": [], "engine": "cpu", "states": []}),
        "states: none is owned by the session, which magic TR03 says",
    ),
    (
        container("TR01", METADATA),
        'aliased_io[0].ownership: "session" needs magic TR03, the blob has TR01',
    ),
    (
        container("TR02", METADATA),
        'aliased_io[0].ownership: "session" needs magic TR03, the blob has TR02',
    ),
    (
        container("TR01", SWAPPED),
        'states[0].ownership: "session" needs magic TR03, the blob has TR01',
    ),
    (container("TR02", {"io_bindings": []}), "aliased_io: is missing"),
    (
        container("TR02", {"io_bindings": [], "aliased_io": []}),
        "aliased_io: is empty, but magic TR02 says that there are aliases",
    ),
    (
        container("TR01", {"io_bindings": TWO[0]}),
        "io_bindings: is an object, expected an array",
    ),
    (
        container("TR01", {"io_bindings": []}, b""),
        "engine_size: 0, and no engine_key says where the engine is",
    ),
    (
        container("TR01", b'{"io_bindings":[],"device_id":0,"device_id":1}'),
        'metadata: key "device_id" appears twice in one object',
    ),
    (
        container("TR01", b'{"io_bindings":[{"name":"x","is_input":true,"\\u006eame":"y"}]}'),
        'metadata: key "name" appears twice in one object',
    ),
    (container("TR01", []), "metadata: is an array, expected an object"),
    (container("TR01", None), "metadata: is null, expected an object"),
    (
        container("TR01", b'{"deep":' + b"[" * 32 + b"]" * 32 + b"}"),
        "metadata: nests deeper than 32 levels",
    ),
    (
        container("TR01", b'{"deep":' + b"[" * 200000 + b"]" * 200000 + b"}"),
        "metadata: nests deeper than 32 levels",
    ),
]

NO_JSON = [
    b"",
    b'{"io_bindings":[]} x',
    b'{"io_bindings":[],}',
    b'{"io_bindings":[]',
    b"{'io_bindings':[]}",
    b'{"io_bindings":[],"a":NaN}',
    b'{"io_bindings":[],"a":-Infinity}',
    b'{"io_bindings":[],"a":1e999}',
    b'{"io_bindings":[],"a":01}',
    b'{"io_bindings":[],/* */"a":1}',
    b'{"io_bindings":[],"a":"\\ud83d"}',
    b'{"io_bindings":[]}\0',
    b'\xef\xbb\xbf{"io_bindings":[]}',
    b'{"io_bindings":[],"a":"\xff"}',
    b'{"io_bindings":[],"a":"\xed\xa0\x80"}',
    b'{"io_bindings":[],"a":"\n"}',
]


def header(**fields: int) -> bytes:
    """TR01 (metadata [32, 326), engine [336, 348)) with other fields in its header."""
    names = ["magic", "metadata_offset", "metadata_size", "engine_offset", "engine_size", "reserved"]
    values = dict(zip(names, struct.unpack("<4sIIIQ8s", TR01[:32]), strict=True)) | fields
    return struct.pack("<4sIIIQ8s", *values.values()) + TR01[32:]


LYING_HEADERS = [
    (b"", "blob: 0 bytes, but the header alone has 32"),
    (TR01[:31], "blob: 31 bytes, but the header alone has 32"),
    (TR01[:32], "metadata_size: 294 bytes at 32 pass the blob's end at 32"),
    (b"TR04" + TR01[4:], 'magic: "TR04" is none of TR01, TR02, TR03'),
    (b"\x7f\0\x01\xff" + TR01[4:], 'magic: "\\x7f\\x00\\x01\\xff" is none of TR01, TR02, TR03'),
    (header(metadata_offset=31), "metadata_offset: 31 is inside the header, which ends at 32"),
    (header(metadata_offset=0), "metadata_offset: 0 is inside the header, which ends at 32"),
    (header(metadata_size=317), "metadata_size: 317 bytes at 32 pass the blob's end at 348"),
    (
        header(metadata_size=2**32 - 1),
        "metadata_size: 4294967295 bytes at 32 pass the blob's end at 348",
    ),
    (
        header(metadata_offset=2**32 - 1),
        "metadata_size: 294 bytes at 4294967295 pass the blob's end at 348",
    ),
    (header(engine_offset=337), "engine_offset: 337 is no multiple of 16"),
    (header(engine_offset=320), "engine_offset: 320 is inside the metadata, which ends at 326"),
    (header(engine_size=13), "engine_size: 13 bytes at 336 pass the blob's end at 348"),
    (
        header(engine_offset=2**32 - 16),
        "engine_size: 12 bytes at 4294967280 pass the blob's end at 348",
    ),
    (
        header(engine_size=2**64 - 336),
        "engine_size: 18446744073709551280 bytes at 336 pass the blob's end at 348",
    ),
]


@pytest.mark.parametrize(("edits", "message"), DEFECTS, ids=[message for _, message in DEFECTS])
def test_a_defect_is_refused_by_name(edits, message):
    with pytest.raises(blob.BlobError) as error:
        blob.read(container("TR03", changed(*edits)))
    assert str(error.value) == message


@pytest.mark.parametrize(("data", "message"), REFUSED + LYING_HEADERS)
def test_a_container_that_contradicts_itself_is_refused(data, message):
    with pytest.raises(blob.BlobError) as error:
        blob.read(data)
    assert str(error.value) == message


@pytest.mark.parametrize("text", NO_JSON)
def test_what_is_no_json_is_refused(text):
    with pytest.raises(blob.BlobError, match=r"^metadata: "):
        blob.read(container("TR01", text))


@pytest.mark.parametrize("name", GOLDEN)
def test_cut_anywhere_is_refused(name):
    data, says, _ = GOLDEN[name]
    for size in range(len(data)):
        with pytest.raises(blob.BlobError):
            blob.read(data[:size])
    assert blob.read(data + b"trailing") == says


def test_any_flipped_bit_of_the_engine_is_refused():
    data = bytearray(TR03)
    for bit in range(8 * (len(data) - len(ENGINE)), 8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(blob.BlobError, match=r"^engine_digest: "):
            blob.read(data)
        data[bit // 8] ^= 1 << bit % 8
    blob.read(data)


def test_a_digest_is_checked_for_an_engine_elsewhere():
    blob.check_engine_digest(ENGINE, DIGEST)
    blob.check_engine_digest(ENGINE, "")
    with pytest.raises(blob.BlobError, match=r"^engine_digest: .* is declared, but the 12 bytes"):
        blob.check_engine_digest(b"engine-bytez", DIGEST)


READ_ONLY = [
    ("aliased_io", METADATA["aliased_io"][1:]),
    ("states.0.output", ""),
    ("position", DELETE),
]
CALLER_STATE = {
    "io_bindings": [{"name": "p", "dtype": "int32", "shape": [], "is_input": True}, *TWO],
    "aliased_io": [{"output": "o", "input": "i"}],
    "states": [
        {
            "id": "s",
            "input": "i",
            "output": "o",
            "update": "in_place",
            "ownership": "caller",
            "dtype": "float32",
            "shape": [4, 2],
            "sequence_dim": 0,
        }
    ],
    "position": {"input": "p", "count": {"value": 2}},
}

# What isn't written so, but is read.
ACCEPTED = {
    "any order of keys": container("TR03", dict(reversed(METADATA.items()))),
    "white space": container("TR03", json.dumps(METADATA, indent=2).encode() + b" \n"),
    "bindings alone": container("TR01", {"io_bindings": TWO}),
    "no bindings": container("TR01", {"io_bindings": []}),
    "a tensor called device_id": container(
        "TR01", {"io_bindings": [{"name": "device_id", "is_input": True}]}
    ),
    "a nested device_id": container("TR01", {"extra": {"device_id": 7}, "io_bindings": TWO}),
    "unknown keys": container("TR01", {"io_bindings": [TWO[0] | {"is_shape": [1, {}]}], "more": 1.5e3}),
    "escapes": container("TR01", b'{"io_bindings":[{"name":"\\"\\\\\\/\\u006b\\u00e9","is_input":true}]}'),
    "an alias without kind": container(
        "TR02", {"io_bindings": TWO, "aliased_io": [{"output": "o", "input": "i"}]}
    ),
    "an alias under TR01": container(
        "TR01", {"io_bindings": TWO, "aliased_io": [{"output": "o", "input": "i", "kind": "user"}]}
    ),
    "a scalar": container(
        "TR01", {"io_bindings": [{"name": "a", "dtype": "bool", "shape": [], "is_input": True}]}
    ),
    "reserved bytes": TR01[:24] + b"\xff" * 8 + TR01[32:],
    "room before the metadata": struct.pack("<4sIIIQ8s", b"TR01", 41, 18, 64, 3, bytes(8))
    + b"\xff" * 9
    + b'{"io_bindings":[]}'
    + b"\xff" * 5
    + b"eng",
    "an engine elsewhere": container("TR03", changed(("engine_key", "abc")), b""),
    "our keys without sessions": container(
        "TR01", {"io_bindings": TWO, "engine": "cpu", "engine_entry": "decode", "engine_key": "abc"}, b""
    ),
    "states of the caller": container("TR02", CALLER_STATE),
    "a state that is only read": container("TR03", changed(*READ_ONLY)),
    "a position without sequences": container("TR03", changed(("states.0.sequence_dim", None))),
    "the largest device_id": container("TR01", {"io_bindings": [], "device_id": 2**31 - 1}),
    "a full cache": container("TR03", changed(("states.0.initial_length", 8))),
    "31 levels": container("TR01", b'{"io_bindings":[],"deep":' + b"[" * 31 + b"]" * 31 + b"}"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_other_forms_are_read(name):
    """And mean the same after a rewrite."""
    read = blob.read(ACCEPTED[name])
    again = blob.read(blob.write(read))
    again.engine_digest = read.engine_digest
    assert again == read


def test_what_other_forms_mean():
    def read(name: str) -> blob.Blob:
        return blob.read(ACCEPTED[name])

    assert read("any order of keys") == read("white space") == tr03(DIGEST)
    plain = read("bindings alone")
    assert plain.bindings == [blob.Binding("i", "", [], True), blob.Binding("o", "", [], False)]
    assert (plain.engine_kind, plain.device_id, plain.aliases) == ("tensorrt", 0, [])
    assert read("a tensor called device_id").device_id == read("a nested device_id").device_id == 0
    assert read("escapes").bindings[0].name == '"\\/ké'
    assert read("an alias without kind").aliases == [blob.Alias("o", "i", "kv_cache_update", "caller", "")]
    assert blob.write(read("an alias under TR01"))[:4] == b"TR02"
    assert (read("room before the metadata").engine, read("an engine elsewhere").engine) == (b"eng", b"")
    assert read("our keys without sessions").engine_key == "abc"
    assert read("states of the caller").position == blob.Position("p", blob.Count(value=2))
    assert read("a state that is only read").states[0].output == ""


def test_nothing_wrong_is_written():
    for field, value, message in (
        ("bindings", [blob.Binding("", "", [], True)], "io_bindings[0].name: is blank"),
        ("device_id", 2**31, "device_id: 2147483648 is outside int32"),
        ("engine", b"", "engine_size: 0, and no engine_key says where the engine is"),
        ("engine_digest", "xxh3:0", 'engine_digest: "xxh3:0" is not xxh3: and 16 lowercase hex digits'),
        ("target_platform", "\ud800", "target_platform: is no valid UTF-8"),
    ):
        wrong = tr01("")
        setattr(wrong, field, value)
        with pytest.raises(blob.BlobError) as error:
            blob.write(wrong)
        assert str(error.value) == message
