"""What an engine tells of itself. On the CPU engine, as TensorRT's need a GPU; plans as a loader would tell them."""

from __future__ import annotations

import pytest
from etrt import _core, plan_tools
from etrt.errors import EtrtError, ExportError
from etrt.wrapping import PlanBinding, PlanDescription, PlanProfile
from make_models import append_engine


@pytest.fixture(scope="module")
def engine():
    return append_engine()


def test_bindings_of_an_engine(engine):
    entries = _core.engine_bindings("cpu", engine)
    assert sorted(entries) == ["decode", "prefill"]
    cache, update, position, cache_out, y = entries["prefill"]
    assert (cache["dtype"], cache["shape"], cache["is_input"]) == ("float32", [1, 2, 16, 4], True)
    assert update["max"][2] == 8
    assert position["dtype"] == "int32"
    assert not cache_out["is_input"] and not y["is_input"]


def test_an_append_is_safe_in_place(engine):
    assert _core.differ_in_place("cpu", engine, 0, [(0, 3)]) == []
    assert _core.differ_in_place("cpu", engine, 1, [(0, 3)]) == []


def test_what_cannot_share_memory(engine):
    with pytest.raises(EtrtError, match="can share memory only if they are alike"):
        _core.differ_in_place("cpu", engine, 1, [(1, 3)])


def test_a_kind_that_is_not_there():
    with pytest.raises(ExportError, match=r"can't be loaded here: .*\"tensorrt\" isn't in this build"):
        plan_tools.read_bindings("tensorrt", b"plan")


def _binding(name, least, greatest, is_input):
    return {
        "name": name,
        "dtype": "float16",
        "shape": least,
        "min": least,
        "max": greatest,
        "is_input": is_input,
    }


def test_extents_that_vary_get_names(monkeypatch):
    entries = {
        str(i): [
            _binding("cache", [1, 2, 64, 8], [1, 2, 64, 8], True),
            _binding("update", [1, 2, 1, 8], [1, 2, most, 8], True),
            _binding("y", [1, 2, 1, 8], [1, 2, most, 8], False),
        ]
        for i, most in enumerate((32, 1))
    }
    monkeypatch.setattr(plan_tools, "_entries", lambda engine, plan: entries)
    bindings, extents = plan_tools.read_bindings("tensorrt", b"plan")
    assert bindings == [
        PlanBinding("cache", "float16", (1, 2, 64, 8), True),
        PlanBinding("update", "float16", (1, 2, "n", 8), True),
        PlanBinding("y", "float16", (1, 2, "n", 8), False),
    ]
    assert extents == {0: {"n": (1, 32)}, 1: {"n": (1, 1)}}


def test_a_description_that_the_plan_contradicts(monkeypatch):
    monkeypatch.setattr(plan_tools, "_entries", lambda engine, plan: {"0": [_binding("x", [1], [1], True)]})
    description = PlanDescription.of({"bindings": ["in:x:float16:1"], "aliases": {"y": "x"}})
    with pytest.raises(ExportError, match="no binding 'y'; it has x"):
        plan_tools.differ_in_place(b"plan", description)
    profiles = PlanDescription(description.bindings, profiles={"forward": PlanProfile(3)})
    with pytest.raises(ExportError, match="no profile 3"):
        plan_tools.differ_in_place(b"plan", profiles)
