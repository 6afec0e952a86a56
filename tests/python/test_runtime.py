"""Sessions, programs and errors from Python."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import etrt
import pytest
import torch
from executorch.runtime import Runtime, Verification
from models import Append
from programs import Parts
from torch import nn
from torch.export import Dim

HEADS, CAPACITY, DIM = 2, 16, 4


class Recurrent(nn.Module):
    """h = h / 2 + x, which is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.h.copy_(self.h * 0.5 + x)
        return self.h.clone()


def rows(count: int, start: int = 0) -> torch.Tensor:
    return (torch.arange(HEADS * count * DIM) + start).float().view(1, HEADS, count, DIM)


def at(position: int) -> torch.Tensor:
    return torch.tensor([position], dtype=torch.int32)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """prefill and decode of an Append, a recurrent method, and one without states."""
    module = Append()
    exported = etrt.export(
        {"prefill": module, "decode": module, "recurrent": Recurrent(), "relu": nn.ReLU()},
        {
            "prefill": (rows(3), at(0)),
            "decode": (rows(1), at(0)),
            "recurrent": (torch.ones(4),),
            "relu": (torch.ones(1, 2),),
        },
        {"prefill": ({2: Dim("n", min=1, max=8)}, None)},
    )
    return exported.save(tmp_path_factory.mktemp("runtime") / "model.pte")


@pytest.fixture
def program(path):
    return etrt.Program(path)


@pytest.fixture
def decode(program):
    return program.method("decode")


def sums(method, *starts: int) -> list[list[float]]:
    """Outputs of decode at positions 0, 1, ...: copies, as their memory is the method's."""
    return [method(rows(1, start), at(i))[0].flatten().tolist() for i, start in enumerate(starts)]


# Sessions.


def test_a_session_keeps_what_runs_write(program, decode):
    prefill = program.method("prefill")
    eager = Append()
    with etrt.Session() as session:
        assert torch.equal(prefill(rows(3), at(0))[0], eager(rows(3), at(0)))
        assert torch.equal(decode(rows(1, 7), at(3))[0], eager(rows(1, 7), at(3)))
        assert session.length() == 4
        assert session.bytes() == eager.cache.nbytes
    assert repr(session) == "<etrt.Session ready, length 4, 512 bytes>"


def test_sessions_do_not_meet(decode):
    with etrt.Session():
        alone = [sums(decode, 1, 2, 3)]
    with etrt.Session():
        alone.append(sums(decode, 50, 60, 70))
    first, second, together = etrt.Session(), etrt.Session(), [[], []]
    for i, starts in enumerate(zip((1, 2, 3), (50, 60, 70), strict=True)):
        for session, start, results in zip((first, second), starts, together, strict=True):
            with session:
                results.append(decode(rows(1, start), at(i))[0].flatten().tolist())
    assert together == alone


def test_scopes_nest(decode):
    outer, inner = etrt.Session(), etrt.Session()
    with outer:
        decode(rows(1), at(0))
        with inner:
            with outer:
                decode(rows(1), at(1))
            decode(rows(1), at(0))
        decode(rows(1), at(2))
    assert (outer.length(), inner.length()) == (3, 1)


def test_a_scope_ends_with_an_exception(decode):
    session = etrt.Session()
    with pytest.raises(ZeroDivisionError), session:
        decode(rows(1), at(0))
        _ = 1 / 0
    with pytest.raises(etrt.EtrtError, match="no session is selected"):
        decode(rows(1), at(1))


def test_a_scope_is_of_one_thread(decode):
    errors = []

    def other():
        try:
            decode(rows(1), at(0))
        except etrt.EtrtError as error:
            errors.append(error.code)

    with etrt.Session():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        decode(rows(1), at(0))
    assert errors == ["NoSession"]


def test_the_default_session(decode):
    session = etrt.Session()
    etrt.set_default_session(session)
    try:
        decode(rows(1), at(0))
        with etrt.Session() as scoped:
            decode(rows(1), at(0))
    finally:
        etrt.set_default_session(None)
    assert (session.length(), scoped.length()) == (1, 1)
    with pytest.raises(etrt.EtrtError, match="no session is selected"):
        decode(rows(1), at(1))


def test_reset(program, decode):
    recurrent = program.method("recurrent")
    with etrt.Session() as session:
        first = sums(decode, 1, 2)
        assert recurrent(torch.ones(4))[0].tolist() == [1.0] * 4
        assert recurrent(torch.ones(4))[0].tolist() == [1.5] * 4
        session.reset()
        assert session.length() == 0
        assert sums(decode, 1, 2) == first
        assert recurrent(torch.ones(4))[0].tolist() == [1.0] * 4


def test_states(program, decode):
    session = etrt.Session()
    assert session.states() == []
    with session:
        decode(rows(1), at(0))
        program.method("recurrent")(torch.ones(4))
    by_id = {state["id"]: state for state in session.states()}
    model_id = by_id["cache"]["model_id"]
    assert by_id == {
        "cache": {
            "model_id": model_id,
            "id": "cache",
            "dtype": "float32",
            "shape": [1, HEADS, CAPACITY, DIM],
            "sequence_dim": 2,
            "update": "in_place",
            "device": "host",
            "bytes": 512,
            "lengths": [1],
        },
        "h": {
            "model_id": model_id,
            "id": "h",
            "dtype": "float32",
            "shape": [4],
            "sequence_dim": None,
            "update": "swap",
            "device": "host",
            "bytes": 32,  # Two buffers.
            "lengths": [1],  # Runs that it has absorbed.
        },
    }


def test_a_view_is_the_memory_itself(decode):
    with etrt.Session() as session:
        decode(rows(1, 1), at(0))
        view = session.view("cache")
        assert torch.equal(view[:, :, :1], rows(1, 1))
        view[:, :, 0] = 100
        assert torch.equal(decode(rows(1), at(1))[0], rows(1) + 100)
        assert torch.equal(view[:, :, 1:2], rows(1))


def test_a_view_keeps_the_memory(decode):
    session = etrt.Session()
    with session:
        decode(rows(1, 3), at(0))
    view = session.view("cache")
    del session
    gc.collect()
    assert torch.equal(view[:, :, :1], rows(1, 3))


def test_a_view_of_no_state(decode):
    with etrt.Session() as session:
        decode(rows(1), at(0))
        with pytest.raises(etrt.EtrtError, match="cache") as error:
            session.view("cash")
    assert error.value.code == "NotFound"


def test_memory_that_something_else_has_filled_is_adopted(decode):
    cache = torch.zeros(1, HEADS, CAPACITY, DIM)
    cache[:, :, :2] = rows(2)
    copied = etrt.stats()["kv_bytes_copied"]
    with etrt.Session() as session:
        session.adopt("cache", cache, 2)
        assert torch.equal(decode(rows(1, 5), at(2))[0], rows(2).sum(2, keepdim=True) + rows(1, 5))
        assert torch.equal(cache[:, :, 2:3], rows(1, 5)), "the run writes into it"
        assert (session.length(), session.bytes()) == (3, 0)
        assert session.view("cache").data_ptr() == cache.data_ptr()
        assert etrt.stats()["kv_bytes_copied"] == copied
        # Another in its place, as numpy has it.
        session.adopt("cache", torch.ones(1, HEADS, CAPACITY, DIM).numpy(), 4)
        assert torch.equal(decode(rows(1), at(4))[0], rows(1) + 4)


def test_adopted_memory_is_kept(decode):
    session = etrt.Session()
    session.adopt("cache", torch.full((1, HEADS, CAPACITY, DIM), 3.0), 1)
    gc.collect()
    with session:
        assert torch.equal(decode(rows(1), at(1))[0], rows(1) + 3)
    view = session.view("cache")
    del session
    gc.collect()
    assert view[0, 0, 0, 0] == 3


@pytest.mark.parametrize(
    ("memory", "length", "message"),
    [
        (torch.zeros(1, HEADS, CAPACITY, DIM, dtype=torch.float16), 0, "float16"),
        (torch.zeros(1, HEADS, 2 * CAPACITY, DIM), 0, r"\[1, 2, 32, 4\]"),
        (torch.zeros(1, CAPACITY, HEADS, DIM).transpose(1, 2), 0, "contiguous"),
        (torch.zeros(1, HEADS, CAPACITY, DIM, device="meta"), 0, "on meta"),
        (torch.zeros(1, HEADS, CAPACITY, DIM, dtype=torch.complex64), 0, "complex64"),
        (torch.zeros(1, HEADS, CAPACITY, DIM), CAPACITY + 1, "17"),
    ],
)
def test_memory_that_does_not_fit_is_refused(decode, memory, length, message):
    with etrt.Session() as session:
        decode(rows(1, 1), at(0))
        with pytest.raises(etrt.EtrtError, match=message) as error:
            session.adopt("cache", memory, length)
        assert error.value.code in ("InvalidArgument", "OutOfRange")
        assert torch.equal(decode(rows(1), at(1))[0], rows(1) + rows(1, 1)), "the state is as it was"


def test_threads_with_a_program_and_session_each(path):
    def work(start: int, results: dict[int, list]) -> None:
        method = etrt.Program(path).method("decode")
        with etrt.Session():
            results[start] = sums(method, *range(start, start + 12))

    alone, together = {}, {}
    for start in range(8):
        work(start, alone)
    threads = [threading.Thread(target=work, args=(start, together)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


# Counters.


def test_counters_of_runs_and_copies(decode):
    before = etrt.stats()
    with etrt.Session():
        sums(decode, *range(10))
    after = etrt.stats()
    assert after["runs"] - before["runs"] == 10
    assert after["kv_bytes_copied"] == before["kv_bytes_copied"]
    assert after["rebinds"] - before["rebinds"] == 1  # The cache's address, once.


def test_an_engine_is_loaded_once_and_goes_with_its_last_user(path):
    gc.collect()
    before = etrt.stats()
    engine = Parts(path.read_bytes()).engines()
    programs = [etrt.Program(path) for _ in range(3)]
    methods = [p.method(name) for p in programs for name in ("prefill", "decode", "relu")]
    during = etrt.stats()
    assert during["engines"] - before["engines"] == 1
    assert during["engine_bytes"] - before["engine_bytes"] == sum(map(len, engine.values()))
    del programs, methods
    gc.collect()
    assert etrt.stats()["engines"] == before["engines"]


def test_session_bytes_come_back(decode):
    gc.collect()
    before = etrt.stats()
    session = etrt.Session()
    with session:
        decode(rows(1), at(0))
    assert etrt.stats()["sessions"] == before["sessions"] + 1
    assert etrt.stats()["session_bytes"] == before["session_bytes"] + 512
    del session
    gc.collect()
    assert etrt.stats()["session_bytes"] == before["session_bytes"]
    assert etrt.stats()["sessions"] == before["sessions"]


# Errors. After each, the session is as before and the next good call works.


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((rows(1), at(16)), "OutOfRange", "capacity 16"),
        ((rows(1), at(3)), "OutOfRange", "hole"),
        ((rows(1), at(-1)), "OutOfRange", "-1"),
        ((rows(2), at(2)), "InvalidArgument", r"input 0 has shape \[1, 2, 2, 4\]; at most \[1, 2, 1, 4\]"),
        ((rows(1).double(), at(2)), "InvalidArgument", "input 0 is torch.float64; expected torch.float32"),
        (
            (rows(1), torch.tensor([2.0])),
            "InvalidArgument",
            "input 1 is torch.float32; expected torch.int32",
        ),
        ((rows(1),), "InvalidArgument", "method 'decode' takes 2 inputs, got 1"),
        ((rows(1), at(2), at(2)), "InvalidArgument", "method 'decode' takes 2 inputs, got 3"),
        ((rows(1), 2), "InvalidArgument", "input 1 is no tensor but int"),
    ],
    ids=["full", "hole", "negative", "shape", "dtype", "position", "too few", "too many", "no tensor"],
)
def test_wrong_arguments(decode, arguments, code, message):
    with etrt.Session() as session:
        first = sums(decode, 1, 2)
        cache = session.view("cache").clone()
        with pytest.raises(etrt.EtrtError, match=message) as error:
            decode(*arguments)
        assert error.value.code == code
        assert (session.length(), session.status) == (2, "ready")
        assert torch.equal(session.view("cache"), cache)
        assert sums(decode, 1, 2) == first


def test_no_session(decode):
    with pytest.raises(etrt.EtrtError) as error:
        decode(rows(1), at(0))
    assert error.value.code == "NoSession"
    assert "no session is selected" in str(error.value)
    with etrt.Session():
        decode(rows(1), at(0))


def test_a_method_without_states_needs_no_session(program):
    assert program.method("relu")(torch.tensor([[-1.0, 2.0]]))[0].tolist() == [[0.0, 2.0]]


def test_methods_by_name(program):
    assert program.method_names == {"prefill", "decode", "recurrent", "relu"}
    with pytest.raises(
        etrt.EtrtError, match="has no method 'forward'; it has: decode, prefill, recurrent, relu"
    ) as error:
        program.method("forward")
    assert error.value.code == "NotFound"


def test_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.pte: no such file"):
        etrt.Program(tmp_path / "nothing.pte")


@pytest.mark.parametrize("part", [0, 100, 0.3, 0.9])
def test_a_cut_program(path, tmp_path, part):
    """Refused when it is loaded, or when its method is."""
    data = path.read_bytes()
    cut = tmp_path / "cut.pte"
    cut.write_bytes(data[: int(part * len(data)) if isinstance(part, float) else part])
    with pytest.raises(etrt.EtrtError) as error:
        etrt.Program(cut).method("decode")
    assert error.value.code in ("InvalidData", "NotFound")


def test_a_flipped_bit_of_the_engine(path, tmp_path):
    data = bytearray(path.read_bytes())
    ((_, engine),) = Parts(bytes(data)).engines().items()
    where = data.find(engine)
    assert where > 0
    damaged = tmp_path / "damaged.pte"
    for offset in (0, 1, len(engine) // 2, len(engine) - 1):
        data[where + offset] ^= 8
        damaged.write_bytes(data)
        data[where + offset] ^= 8
        gc.collect()  # An engine that is loaded already isn't read again.
        with pytest.raises(etrt.EtrtError, match="engine_digest") as error:
            etrt.Program(damaged).method("decode")
        assert error.value.code == "InvalidData"
    damaged.write_bytes(data)
    with etrt.Session():
        etrt.Program(damaged).method("decode")(rows(1), at(0))


# ExecuTorch's own runtime.


def test_executorch_runtime(path, decode):
    """The same file, the same sessions; errors are numbers, and last_error has the text."""
    method = Runtime.get().load_program(path, verification=Verification.Minimal).load_method("decode")
    with etrt.Session():
        expected = sums(decode, 1, 2)
    with pytest.raises(RuntimeError):
        method.execute([rows(1), at(0)])
    assert "no session is selected" in etrt.last_error()
    with etrt.Session() as session:
        found = [method.execute([rows(1, i + 1), at(i)])[0].flatten().tolist() for i in range(2)]
        assert found == expected
        decode(rows(1), at(2))  # Both reach one state.
        assert session.length() == 3


def test_the_backend_is_registered_by_the_import():
    registry = Runtime.get().backend_registry
    assert "TensorRTBackend" in registry.registered_backend_names
    assert registry.is_available("TensorRTBackend")


def test_last_error_is_of_one_thread(decode):
    with pytest.raises(etrt.EtrtError):
        decode(rows(1), at(0))
    assert etrt.last_error()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(etrt.last_error()))
    thread.start()
    thread.join()
    assert seen == [""]


def test_import_is_lazy():
    """Running needs no torch; and what isn't there is an AttributeError."""
    code = (
        "import sys, etrt; assert 'torch' not in sys.modules; assert 'Session' in dir(etrt); "
        "assert not hasattr(etrt, 'nothing'); etrt.ExportError; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_is_enough_for_executorchs_runtime(path):
    code = f"""
import etrt
import torch
from executorch.runtime import Runtime

method = Runtime.get().load_program({str(path)!r}).load_method("decode")
with etrt.Session() as session:
    method.execute([torch.ones(1, {HEADS}, 1, {DIM}), torch.tensor([0], dtype=torch.int32)])
    assert session.length() == 1
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
