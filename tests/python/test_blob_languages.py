"""The container in Python and in C++: each reads what the other wrote, and they refuse alike."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from containers import TR01, TR02, TR03, UPSTREAM_TR01, UPSTREAM_TR02, changed, container
from etrt import blob
from test_blob import ACCEPTED, DEFECTS, LYING_HEADERS, NO_JSON, REFUSED

ROOT = Path(__file__).parents[2]


class Cpp:
    """The C++ reader and writer: tests/blob/blob_tool.cpp."""

    def __init__(self, tool: Path) -> None:
        self._process = subprocess.Popen([tool], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def rewrite(self, data: bytes) -> bytes:
        """Read and written again. Raises BlobError with what C++ says."""
        pipe = self._process
        pipe.stdin.write(struct.pack("=I", len(data)) + data)
        pipe.stdin.flush()
        size, good = struct.unpack("=IB", pipe.stdout.read(5))
        answer = pipe.stdout.read(size)
        if not good:
            raise blob.BlobError(answer.decode())
        return answer

    def close(self) -> None:
        self._process.stdin.close()
        assert self._process.wait(timeout=10) == 0


@pytest.fixture(scope="module")
def cpp(tmp_path_factory):
    """Built in build/dev, or ETRT_BLOB_TOOL; else built here."""
    tool = Path(os.environ.get("ETRT_BLOB_TOOL", ROOT / "build/dev/tests/blob/blob_tool"))
    if not tool.exists():
        folder = tmp_path_factory.mktemp("build")
        cmake = shutil.which("cmake")
        assert cmake, "cmake isn't installed: pip install -r requirements.txt"
        subprocess.run(
            [cmake, "-S", ROOT, "-B", folder, "-DETRT_EXECUTORCH=OFF", "-DETRT_BENCHMARKS=OFF"], check=True
        )
        subprocess.run([cmake, "--build", folder, "--target", "blob_tool"], check=True)
        tool = folder / "tests/blob/blob_tool"
    process = Cpp(tool)
    yield process
    process.close()


GOOD = {
    "TR01": TR01,
    "TR02": TR02,
    "TR03": TR03,
    "upstream TR01": UPSTREAM_TR01,
    "upstream TR02": UPSTREAM_TR02,
    **ACCEPTED,
    "names of all kinds": container(
        "TR01", {"io_bindings": [{"name": 'ключ\u2028"\\\x7f\x01😀', "is_input": True}]}
    ),
    "a large extent": container(
        "TR01", {"io_bindings": [{"name": "x", "dtype": "int8", "shape": [2**63 - 1], "is_input": True}]}
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_both_write_the_same_bytes(cpp, name):
    ours = blob.write(blob.read(GOOD[name]))
    assert cpp.rewrite(GOOD[name]) == ours
    assert cpp.rewrite(ours) == ours
    assert blob.write(blob.read(cpp.rewrite(GOOD[name]))) == ours


def test_both_refuse_in_the_same_words(cpp):
    bad = [container("TR03", changed(*edits)) for edits, _ in DEFECTS]
    bad += [data for data, _ in REFUSED + LYING_HEADERS]
    for data in bad:
        with pytest.raises(blob.BlobError) as ours:
            blob.read(data)
        with pytest.raises(blob.BlobError) as theirs:
            cpp.rewrite(data)
        assert str(theirs.value) == str(ours.value)


@pytest.mark.parametrize("text", NO_JSON)
def test_both_refuse_what_is_no_json(cpp, text):
    """Each JSON library says it in its own words."""
    with pytest.raises(blob.BlobError, match=r"^metadata: "):
        cpp.rewrite(container("TR01", text))


@pytest.mark.parametrize("data", [UPSTREAM_TR01, TR02, TR03], ids=["upstream TR01", "TR02", "TR03"])
def test_both_judge_damage_alike(cpp, data):
    """One byte changed at random: both refuse it, or both read the same."""
    choice = random.Random(1)
    refused = 0
    for _ in range(4000):
        damaged = bytearray(data)
        damaged[choice.randrange(len(data))] = choice.randrange(256)
        try:
            ours = blob.write(blob.read(damaged))
        except blob.BlobError:
            refused += 1
            with pytest.raises(blob.BlobError):
                cpp.rewrite(bytes(damaged))
        else:
            assert cpp.rewrite(bytes(damaged)) == ours, damaged
    assert 1000 < refused < 4000
