"""Programs around ready plans. The plan is one that TensorRT 8.6 built: cache_out = cache with update's rows
at pos."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from etrt import blob
from etrt.cli.wrap_command import wrap_command
from etrt.errors import ExportError
from etrt.wrapping import PlanBinding, PlanProfile, PlanState, wrap
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.schema import DelegateCall, ScalarType, Tensor, TensorShapeDynamism
from typer.testing import CliRunner

PLAN = Path(__file__).parents[1] / "data" / "kv_append_trt86.plan"
BINDINGS = [
    "in:cache:float16:1,2,64,8",
    "in:update:float16:1,2,n,8",
    "in:pos:int32:1",
    "out:cache_out:float16:1,2,64,8",
    "out:y:float16:1,2,n,8",
]
SETTINGS = {
    "aliases": {"cache_out": "cache"},
    "states": {"k": PlanState("cache", 2)},
    "position": "pos",
    "profiles": {"prefill": PlanProfile(0, {"n": (1, 32)}), "decode": PlanProfile(1, {"n": (1, 1)})},
}
KEY = "1344da02c090731173439a7ac4f3bfd243d43be46461dc54a20d4eecb3c7e23d"  # sha256sum of the plan.


def _parts(buffer: bytes):
    """The program's methods by name, the container of each, and named data by key."""
    file = deserialize_pte_binary(buffer)
    methods = {plan.name: plan for plan in file.program.execution_plan}
    containers = {
        name: blob.read(file.program.backend_delegate_data[plan.delegates[0].processed.index].data)
        for name, plan in methods.items()
    }
    named = {
        key: file.named_data.buffers[entry.buffer_index] for key, entry in file.named_data.pte_data.items()
    }
    return methods, containers, named


@pytest.fixture(scope="module")
def wrapped():
    return _parts(wrap(PLAN, BINDINGS, **SETTINGS).buffer)


def test_one_method_for_each_profile(wrapped):
    methods, containers, _ = wrapped
    assert {name: c.engine_entry for name, c in containers.items()} == {"prefill": "0", "decode": "1"}
    for plan in methods.values():
        assert [d.id for d in plan.delegates] == ["TensorRTBackend"]
        (chain,) = plan.chains
        assert [type(i.instr_args) for i in chain.instructions] == [DelegateCall]
        # The method's inputs and outputs are the delegate's, in order.
        assert chain.instructions[0].instr_args.args == [*plan.inputs, *plan.outputs]


def test_states_are_no_arguments(wrapped):
    methods, _, _ = wrapped
    for name, tokens, dynamism in (
        ("prefill", 32, TensorShapeDynamism.DYNAMIC_BOUND),
        ("decode", 1, TensorShapeDynamism.STATIC),
    ):
        tensors = [methods[name].values[i].val for i in [*methods[name].inputs, *methods[name].outputs]]
        assert all(isinstance(t, Tensor) for t in tensors)
        assert [(t.scalar_type, t.sizes, t.shape_dynamism) for t in tensors] == [
            (ScalarType.HALF, [1, 2, tokens, 8], dynamism),
            (ScalarType.INT, [1], TensorShapeDynamism.STATIC),
            (ScalarType.HALF, [1, 2, tokens, 8], dynamism),
        ]


def test_the_container(wrapped):
    _, containers, _ = wrapped
    prefill, decode = containers["prefill"], containers["decode"]
    assert (prefill.version, prefill.engine_kind, prefill.engine_key) == ("TR03", "tensorrt", KEY)
    assert prefill.model_id == decode.model_id == "plan-1344da02c0907311"
    assert [(b.name, b.dtype, list(b.shape), b.is_input) for b in prefill.bindings] == [
        ("cache", "float16", [1, 2, 64, 8], True),
        ("update", "float16", [1, 2, -1, 8], True),
        ("pos", "int32", [1], True),
        ("cache_out", "float16", [1, 2, 64, 8], False),
        ("y", "float16", [1, 2, -1, 8], False),
    ]
    assert list(decode.bindings[1].shape) == [1, 2, 1, 8]
    assert prefill.position == blob.Position("pos", blob.Count(input="update", dim=2))
    assert decode.position == blob.Position("pos", blob.Count(value=1))


def test_the_plan_is_stored_once(wrapped):
    _, containers, named = wrapped
    assert named[KEY] == PLAN.read_bytes()
    assert set(named) == {KEY, KEY + ".info"}
    for container in containers.values():
        assert container.engine == b""
        assert container.engine_digest == blob.digest(PLAN.read_bytes())


def test_states_swap_unless_told_otherwise(wrapped):
    _, containers, _ = wrapped
    for container in containers.values():
        assert container.aliases == []
        assert container.states == [
            blob.State("k", "cache", "cache_out", "swap", "session", "float16", [1, 2, 64, 8], 2)
        ]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"update": "in_place"}, "user"),
        ({"aliases": {"cache_out": ("cache", "kv_cache_update")}}, "kv_cache_update"),
    ],
)
def test_in_place(change, kind):
    _, containers, _ = _parts(wrap(PLAN, BINDINGS, **{**SETTINGS, **change}).buffer)
    for container in containers.values():
        assert container.aliases == [blob.Alias("cache_out", "cache", kind, "session", "k")]
        assert [s.update for s in container.states] == ["in_place"]


def test_the_caller_owns_what_is_no_state():
    settings = {**SETTINGS, "states": {}, "position": None, "update": "in_place"}
    methods, containers, named = _parts(wrap(PLAN, BINDINGS, **settings).buffer)
    for name, container in containers.items():
        assert (container.version, container.engine_entry) == ("TR02", "0" if name == "prefill" else "1")
        assert container.aliases == [blob.Alias("cache_out", "cache", "user", "caller")]
        assert container.states == []
        # The cache is an argument; the aliased output is none.
        assert (len(methods[name].inputs), len(methods[name].outputs)) == (3, 1)
    assert named[KEY] == PLAN.read_bytes()


def test_a_plan_without_states():
    buffer = wrap(PLAN, BINDINGS, profiles={"forward": {"index": 1, "extents": {"n": 1}}}).buffer
    methods, containers, _ = _parts(buffer)
    assert containers["forward"].version == "TR01"
    assert (len(methods["forward"].inputs), len(methods["forward"].outputs)) == (3, 2)


def test_model_id_and_engine():
    _, containers, _ = _parts(wrap(PLAN, BINDINGS, **SETTINGS, model_id="chat", engine="tensorrt_rtx").buffer)
    assert {(c.model_id, c.engine_kind) for c in containers.values()} == {("chat", "tensorrt_rtx")}


def test_same_file_from_a_bindings_file_and_from_flags(tmp_path):
    file = tmp_path / "bindings.json"
    file.write_text(
        json.dumps(
            {
                "bindings": [
                    {"name": "cache", "dtype": "float16", "shape": [1, 2, 64, 8], "is_input": True},
                    {"name": "update", "dtype": "float16", "shape": [1, 2, "n", 8], "is_input": True},
                    {"name": "pos", "dtype": "int32", "shape": [1], "is_input": True},
                    {"name": "cache_out", "dtype": "float16", "shape": [1, 2, 64, 8], "is_input": False},
                    {"name": "y", "dtype": "float16", "shape": [1, 2, "n", 8], "is_input": False},
                ],
                "aliases": {"cache_out": "cache"},
                "states": {"k": {"input": "cache", "sequence_dim": 2}},
                "position": "pos",
                "profiles": {
                    "prefill": {"index": 0, "extents": {"n": [1, 32]}},
                    "decode": {"index": 1, "extents": {"n": 1}},
                },
            }
        )
    )
    expected = wrap(PLAN, BINDINGS, **SETTINGS).buffer
    assert wrap(PLAN, file).buffer == expected

    flags = [f"--binding={b}" for b in BINDINGS]
    flags += ["--alias=cache_out=cache", "--state=k=cache@2", "--position=pos"]
    flags += ["--profile=prefill=0:n=1..32", "--profile=decode=1:n=1"]
    result = _command(str(PLAN), *flags, "-o", str(tmp_path / "flags.pte"))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "flags.pte").read_bytes() == expected
    result = _command(str(PLAN), f"--bindings={file}", "-o", str(tmp_path / "file.pte"))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "file.pte").read_bytes() == expected


def _command(*arguments: str):
    app = typer.Typer()
    app.command()(wrap_command)
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give the plan's bindings, in a file with --bindings"),
        (["--bindings=nowhere.json"], "bindings file nowhere.json: No such file"),
        (["--bindings=a.json", "--binding=in:a:int32:1"], "give one of them"),
        (["--binding=cache:float16:1"], "expected in:NAME:DTYPE:EXTENTS"),
        (["--binding=in:a:int32:1", "--alias=cache_out"], "expected OUTPUT=INPUT"),
        (["--binding=in:a:int32:1", "--state=k"], "expected ID=INPUT"),
        (["--binding=in:a:int32:1", "--profile=decode"], "expected METHOD=INDEX"),
        (["--binding=in:a:int32:1", "--profile=decode=0:n=a"], "expected an extent like n=1..32"),
        (["--binding=in:a:int32:1", "--count=update"], "expected INPUT.DIM"),
        (["--binding=in:a:int32:1", "--binding=out:y:int32:1", "--check"], "isn't in this build"),
    ],
)
def test_the_command_refuses(arguments, message, tmp_path):
    result = _command(str(PLAN), "-o", str(tmp_path / "x.pte"), *arguments)
    assert result.exit_code == 1
    assert message in result.output
    assert list(tmp_path.iterdir()) == []


def _without(name: str) -> list[str]:
    return [b for b in BINDINGS if b.split(":")[1] != name]


@pytest.mark.parametrize(
    ("bindings", "change", "message"),
    [
        (BINDINGS, {"engine": "cuda"}, "engine is 'cuda'; expected one of tensorrt, tensorrt_rtx"),
        (BINDINGS, {"update": "copy"}, "update is 'copy'; expected one of swap, in_place"),
        (BINDINGS, {"speed": "fast"}, "'speed' is none of aliases, bindings"),
        (
            _without("cache_out"),
            {},
            "alias cache_out=cache: 'cache_out' is none of the bindings cache, update, pos, y",
        ),
        (BINDINGS, {"aliases": {"cache": "cache_out"}}, "'cache' is an input; expected an output"),
        (BINDINGS, {"aliases": {"cache_out": ("cache", "magic")}}, "kind is 'magic'; expected one of user"),
        (BINDINGS, {"aliases": {"cache_out": "update"}}, "no output has the next value of 'cache'"),
        (
            BINDINGS,
            {"aliases": {}},
            "no output has the next value of 'cache'; say which with an alias, OUTPUT=cache",
        ),
        (BINDINGS, {"states": {"k": "kache"}}, "state k=kache: 'kache' is none of the bindings"),
        (BINDINGS, {"states": {"k": "cache", "v": "cache"}}, "input 'cache' is state 'k' and 'v'"),
        (BINDINGS, {"states": {"k": PlanState("cache", 4)}}, "sequence_dim is 4; 'cache' has dims 0 to 3"),
        (
            BINDINGS,
            {"states": {}, "position": None},
            "the caller owns 'cache', which then is written in place",
        ),
        (
            BINDINGS,
            {"position": None, "profiles": {}},
            "state 'k' has a sequence dim; say which input is the position",
        ),
        (BINDINGS, {"position": "y"}, "position: 'y' is an output; expected an input"),
        (BINDINGS, {"states": {"k": "cache"}}, "position is 'pos', but no state has a sequence dim"),
        (BINDINGS, {"count": ("update", 7)}, "count: 'update' has no dim 7"),
        (BINDINGS, {"profiles": {}}, "profiles is empty"),
        (BINDINGS, {"profiles": {"decode": -1}}, "profile of method 'decode' is -1"),
        (BINDINGS, {"profiles": {"decode": 1}}, "profile decode=1: no range for extent 'n'; add n=1..N"),
        (
            BINDINGS,
            {"profiles": {"d": PlanProfile(1, {"n": (1, 1), "m": (1, 2)})}},
            "no binding has an extent 'm'",
        ),
        (BINDINGS, {"profiles": {"d": PlanProfile(1, {"n": (2, 1)})}}, "n=2..1 is no range"),
        ([*_without("y"), "out:y:float16:1,2,m,8"], {"count": 1}, "no range for extent 'm'"),
        (
            [*_without("y"), "out:y:float16:1,2,m,8"],
            {},
            "count is missing: say how many positions a run appends",
        ),
        ([*_without("cache"), "in:cache:float16:1,2,-1,8"], {}, "extent -1 is negative; give an extent"),
        (
            [*_without("cache"), "in:cache:float16:1,2,n,8"],
            {},
            "extent 'n' of 'cache' varies; a state has one size",
        ),
        (
            [*_without("cache"), "in:cache:half:1,2,64,8"],
            {},
            "dtype is 'half'; expected one of float32, float16",
        ),
        ([*_without("cache"), "in:cache:float32:1,2,64,8"], {}, "differs from float16 of binding"),
        ([*_without("cache_out"), "out:cache_out:float16:1,2,32,8"], {}, "differs from"),
        ([*BINDINGS, "in:pos:int32:1"], {}, '"pos" is the name of io_bindings'),
        ([*_without("pos"), "in:pos:float32:1"], {}, "expected int32 or int64"),
        (_without("y"), {}, "a method would return nothing"),
        ([PlanBinding("a b", "int32", ("1 2",), True)], {}, "extent '1 2' is neither a number nor a name"),
        ([{"name": "cache"}], {}, "bindings: [{'name': 'cache'}] isn't as expected"),
    ],
)
def test_refuses(bindings, change, message):
    with pytest.raises(ExportError) as caught:
        wrap(PLAN, bindings, **{**SETTINGS, **change})
    assert message in str(caught.value)


def test_an_output_whose_size_no_input_tells():
    bindings = [*_without("y"), "out:y:float16:1,2,m,8"]
    profiles = {"decode": PlanProfile(1, {"n": (1, 1), "m": (1, 4)})}
    with pytest.raises(ExportError, match="extent 'm' is in no input of the method"):
        wrap(PLAN, bindings, **{**SETTINGS, "profiles": profiles, "count": 1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "it is a JSON list, expected an object"),
        ("{", "is no JSON"),
        ('{"aliases": {}}', "bindings is missing"),
        ('{"bindings": [], "speed": 1}', "'speed' is none of"),
    ],
)
def test_refuses_a_bindings_file(tmp_path, text, message):
    file = tmp_path / "b.json"
    file.write_text(text)
    with pytest.raises(ExportError, match=message) as caught:
        wrap(PLAN, file)
    assert str(file) in str(caught.value)


def test_refuses_what_is_no_plan(tmp_path):
    with pytest.raises(ExportError, match="No such file"):
        wrap(tmp_path / "none.plan", BINDINGS, **SETTINGS)
    short = tmp_path / "short.plan"
    short.write_bytes(b"ftrt")
    with pytest.raises(ExportError, match="has 4 bytes"):
        wrap(short, BINDINGS, **SETTINGS)
