"""etrt.export and the partitioner: which states there are and what they are called, and what is refused."""

from __future__ import annotations

import etrt
import pytest
import torch
from etrt import ExportError, KVCache, TensorRTPartitioner
from etrt.options import SPEC_KEY, Options
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.compile_spec_schema import CompileSpec
from models import Append, Decoder, fill
from programs import Parts, save
from torch import nn
from torch.export import Dim

HEADS, CAPACITY, DIM = 2, 16, 4
X, AT = torch.ones(1, HEADS, 1, DIM), torch.zeros(1, dtype=torch.int32)


def export(methods, **options) -> Parts:
    """Exports Append-like modules, one row at a time."""
    return Parts(etrt.export(methods, dict.fromkeys(methods, (X, AT)), **options).buffer)


def ids(parts: Parts, *methods: str) -> list[list[str]]:
    return [sorted(parts.states(method)) for method in methods]


class Under(nn.Module):
    """An Append whose buffer has a name of its own."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        super().__init__()
        self.name = name
        self.register_buffer(name, tensor)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        cache = getattr(self, self.name)
        new = torch.ops.etrt.kv_cache_update(cache, x, position, 2)
        cache.copy_(new)
        return new.cumsum(2)


class Reader(nn.Module):
    """Reads a cache that another method writes."""

    def __init__(self, cache: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("seen", cache)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self.seen.cumsum(2)[:, :, : x.shape[2]] + x + position


def cache() -> torch.Tensor:
    return torch.zeros(1, HEADS, CAPACITY, DIM)


# Which states are the same.


def test_one_buffer_under_two_names_is_one_state():
    shared = cache()
    parts = export({"first": Under("b", shared), "second": Under("a", shared)})
    assert ids(parts, "first", "second") == [["a"], ["a"]]  # The least of its names.


def test_two_buffers_under_one_name_are_two_states():
    parts = export({"first": Under("a", cache()), "second": Under("a", cache())})
    assert ids(parts, "first", "second") == [["first/a"], ["second/a"]]


def test_equal_contents_make_no_state_the_same():
    """Nor does sharing the memory of other tensors: it is the buffer that counts."""
    first, second = cache(), cache()
    parts = export({"first": Under("a", first), "second": Under("b", second), "third": Under("c", first)})
    assert ids(parts, "first", "second", "third") == [["a"], ["b"], ["a"]]


def test_a_reader_knows_the_state_that_another_method_writes(tmp_path):
    shared = cache()
    exported = etrt.export(
        {"write": Under("a", shared), "read": Reader(shared)}, {"write": (X, AT), "read": (X, AT)}
    )
    parts = Parts(exported.buffer)
    assert ids(parts, "write", "read") == [["a"], ["a"]]
    assert parts.states("read")["a"].output == ""
    program = save(exported, tmp_path)
    with etrt.Session() as session:
        program.method("write")(5 * X, AT)
        assert torch.equal(program.method("read")(X, AT)[0], 6 * X)
        assert session.length() == 1


def test_a_buffer_that_nobody_writes_is_a_constant():
    parts = export({"read": Reader(cache())})
    assert parts.states("read") == {}


def test_nested_names_are_ids():
    module = nn.Module()
    module.layers = nn.ModuleList([Append(), Append()])
    module.forward = lambda x, position: module.layers[0](x, position) + module.layers[1](x, position)
    parts = export({"forward": module})
    assert ids(parts, "forward") == [["layers.0.cache", "layers.1.cache"]]


def test_state_ids_rename():
    parts = export(
        {"first": Under("a", cache()), "second": Under("a", cache())},
        state_ids={"first": {"a": "mine"}},
    )
    assert ids(parts, "first", "second") == [["mine"], ["a"]]


def test_state_ids_can_make_two_buffers_one_state():
    parts = export(
        {"first": Under("a", cache()), "second": Under("b", cache())},
        state_ids={"first": {"a": "both"}, "second": {"b": "both"}},
    )
    assert ids(parts, "first", "second") == [["both"], ["both"]]


def test_a_given_id_is_taken_from_others():
    parts = export(
        {"first": Under("a", cache()), "second": Under("b", cache())}, state_ids={"first": {"a": "b"}}
    )
    assert ids(parts, "first", "second") == [["b"], ["second/b"]]


def test_ids_do_not_depend_on_the_order_of_methods():
    def exported(*order: str) -> dict[str, list[str]]:
        shared = cache()
        modules = {"x": Under("b", shared), "y": Under("a", shared), "z": Under("a", cache())}
        parts = export({name: modules[name] for name in order})
        return {name: sorted(parts.states(name)) for name in order}

    first = exported("x", "y", "z")
    assert first == exported("z", "y", "x") == exported("y", "z", "x")
    assert first == {"x": ["x/b"], "y": ["x/b"], "z": ["z/a"]}


def test_an_export_repeats_byte_for_byte_what_sessions_depend_on():
    def exported() -> list:
        parts = export({"first": Append(), "second": Append()})
        return [
            (b.model_id, b.states, b.aliases, b.position) for m in ("first", "second") for b in parts.blobs(m)
        ]

    assert exported() == exported()


def test_model_id():
    """The default depends on the states alone, so that files exported apart meet in one session."""
    one, two = export({"a": Append()}), export({"b": Append()})
    assert one.blob("a").model_id == two.blob("b").model_id
    assert one.blob("a").model_id.startswith("states-")
    assert one.blob("a").model_id != export({"a": Under("other", cache())}).blob("a").model_id
    assert export({"a": Append()}, model_id="mine").blob("a").model_id == "mine"


def test_initial_values_are_stored_once(tmp_path):
    filled = torch.arange(128.0).view(1, HEADS, CAPACITY, DIM)
    module = Under("a", filled)
    exported = etrt.export(
        {"first": module, "second": module},
        dict.fromkeys(["first", "second"], (X, AT)),
        initial_lengths={"first": {"a": 5}, "second": {"a": 5}},
    )
    parts = Parts(exported.buffer)
    stored = {key: data for key, data in parts.named_data().items() if key.startswith("etrt.initial.")}
    assert list(stored.values()) == [filled.numpy().tobytes()]
    state = parts.states("first")["a"]
    assert (state.initial_key, state.initial_length) == (next(iter(stored)), 5)
    assert parts.states("second")["a"] == state
    program = save(exported, tmp_path)
    with etrt.Session() as session:
        program.method("second")(X, torch.tensor([5], dtype=torch.int32))
        expected = filled.clone()
        expected[:, :, 5] = 1
        assert torch.equal(session.view("a"), expected)
        assert session.length() == 6


def test_zeros_are_not_stored():
    parts = export({"forward": Append()})
    assert not [key for key in parts.named_data() if key.startswith("etrt.initial.")]
    assert parts.states("forward")["cache"].initial_key == ""


def test_kv_cache_tells_its_initial_length():
    class Filled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache = KVCache(1, HEADS, CAPACITY, DIM)
            self.cache.update(torch.ones(1, HEADS, 3, DIM), torch.ones(1, HEADS, 3, DIM), torch.tensor(0))
            self.cache.initial_length = 3

        def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
            k, v = self.cache.update(x, x, position)
            return k.cumsum(2) + v

    for state in export({"forward": Filled()}).states("forward").values():
        assert state.initial_length == 3
        assert state.initial_key


# Weights and engines once.


@pytest.fixture(scope="module")
def decoder():
    """Its weights' bytes; the programs with one method and with two."""
    module = fill(Decoder(layers=1, vocabulary=256))
    weights = sum(p.numel() * p.element_size() for p in module.parameters())
    examples = {
        "prefill": (torch.zeros(1, 3, dtype=torch.int64), torch.tensor([0])),
        "decode": (torch.zeros(1, 1, dtype=torch.int64), torch.tensor([0])),
    }
    shapes = {"prefill": ({1: Dim("tokens", min=1, max=16)}, None)}
    both = etrt.export({"prefill": module, "decode": module}, examples, shapes)
    one = etrt.export({"decode": module}, {"decode": examples["decode"]})
    return weights, one.buffer, both.buffer


def test_methods_share_one_engine_with_the_weights_once(decoder):
    weights, one, both = decoder
    parts = Parts(both)
    assert len(parts.engines()) == 1
    assert {parts.blob(m).engine_key for m in ("prefill", "decode")} == set(parts.engines())
    assert [parts.blob(m).engine_entry for m in ("prefill", "decode")] == ["prefill", "decode"]
    # A second copy of the weights would add all of them.
    assert len(both) - len(one) < weights / 2 < len(one)
    head = fill(Decoder(layers=1, vocabulary=256)).head.weight.detach().numpy().tobytes()
    assert both.count(head[:256]) == 1


def test_methods_have_no_cache_among_their_arguments(decoder):
    _, _, both = decoder
    parts = Parts(both)
    for plan in parts.file.program.execution_plan:
        assert (len(plan.inputs), len(plan.outputs)) == (2, 1)
        assert parts.operators(plan.name) == ["delegate"]
        # No cache (2 x 512 floats), nor anything else, but the logits.
        assert parts.planned_bytes(plan.name) <= 16 * 256 * 4 + 64


def test_the_digest_of_the_engine_is_in_the_blob(decoder):
    _, _, both = decoder
    parts = Parts(both)
    ((_, engine),) = parts.engines().items()
    assert parts.blob("decode").engine_digest == etrt.blob.digest(engine)


def test_saved_whole_or_not_at_all(tmp_path, monkeypatch):
    exported = etrt.export(nn.Linear(2, 2), (torch.ones(1, 2),))
    path = exported.save(tmp_path / "a.pte")
    assert path.read_bytes() == exported.buffer
    monkeypatch.setattr(exported.program, "write_to_file", lambda file: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        exported.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.pte"]
    assert (
        path.read_bytes() == etrt.export(nn.Linear(2, 2), (torch.ones(1, 2),)).buffer or path.stat().st_size
    )


# The partitioner by itself.


def lower(programs, partitioner=None):
    edge = to_edge_transform_and_lower(programs, partitioner=partitioner or [TensorRTPartitioner()])
    return Parts(bytes(edge.to_executorch().buffer))


def test_partitioner_alone_with_one_method():
    parts = lower(torch.export.export(Append(), (X, AT)))
    assert ids(parts, "forward") == [["cache"]]
    assert parts.operators("forward") == ["delegate"]


def test_partitioner_alone_with_several_methods():
    module = Append()
    traced = {name: torch.export.export(module, (X, AT)) for name in ("prefill", "decode")}
    parts = lower(traced)
    assert ids(parts, "prefill", "decode") == [["cache"], ["cache"]]
    assert len(parts.engines()) == 1


def test_partitioner_for_each_method():
    traced = {name: torch.export.export(Append(), (X, AT)) for name in ("first", "second")}
    parts = lower(traced, {name: [TensorRTPartitioner(model_id="m")] for name in traced})
    assert ids(parts, "first", "second") == [["first/cache"], ["second/cache"]]
    with pytest.raises(ExportError, match="the methods' partitioners have different settings"):
        lower(traced, {name: [TensorRTPartitioner(model_id=name)] for name in traced})


def test_options_survive_compile_specs():
    options = Options("cpu", "session", "m", {"a": {"b": "c"}}, {"a": {"b": 1}}, {"n": [1, "x"]})
    assert Options.from_specs([CompileSpec("other", b""), *options.to_specs()]) == options
    with pytest.raises(ExportError, match=r"no compile spec etrt_options: .*TensorRTPartitioner"):
        Options.from_specs([])
    with pytest.raises(ExportError, match=r"compile spec etrt_options: .*'colour'"):
        Options.from_specs([CompileSpec(SPEC_KEY, b'{"colour": 1}')])


# The forms in which methods can be given.


def test_forms_of_methods():
    module = Append()
    for methods in (
        {"m": (module, (X, AT))},
        {"m": torch.export.export(module, (X, AT))},
    ):
        parts = Parts(etrt.export(methods, constant_methods={"get_max_seq_len": CAPACITY}).buffer)
        assert ids(parts, "m") == [["cache"]]
        assert {p.name for p in parts.file.program.execution_plan} == {"m", "get_max_seq_len"}


def test_progress_goes_forward():
    told = []
    etrt.export(Append(), (X, AT), progress=lambda stage, done: told.append((stage, done)))
    parts = [done for _, done in told]
    assert parts == sorted(parts)
    assert (parts[0], parts[-1]) == (0.0, 1.0)
    assert told[0][0] == "tracing forward"


# What is refused.

MODULE = Append()
EXAMPLES = {"m": (X, AT)}


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (({},), {}, r"methods is empty; name at least one, like \{'forward': module\}"),
        (({"m": 3},), {}, "method 'm' is a int; expected a torch.nn.Module"),
        (({"m": (MODULE,)},), {}, "method 'm' is a tuple of 1; expected"),
        (({"m": MODULE},), {}, r"method 'm' has no example inputs; give them in example_inputs\['m'\]"),
        (
            ({"m": MODULE}, {"m": X}),
            {},
            r"example_inputs\['m'\] is a Tensor; expected a tuple with one entry for each argument",
        ),
        (
            ({"m": MODULE}, (X, AT)),
            {},
            "example_inputs is a tuple; with several methods it is a dict: method -> example_inputs",
        ),
        (
            ({"m": MODULE}, {"n": (X, AT)}),
            {},
            "example_inputs has 'n', which is no method; the methods are m",
        ),
        (({"m": MODULE}, EXAMPLES, {"n": None}), {}, "dynamic_shapes has 'n', which is no method"),
        (
            ({"m": MODULE}, EXAMPLES),
            {"constant_methods": {"m": 1}},
            "constant_methods and methods both have 'm'; give one of them another name",
        ),
        (({"m": MODULE}, {"m": (X,)}), {}, "method 'm' can't be traced by torch.export"),
        (
            ({"m": MODULE}, EXAMPLES),
            {"engine": "gpu"},
            "engine is 'gpu'; expected one of cpu, tensorrt, tensorrt_rtx",
        ),
        (
            ({"m": MODULE}, EXAMPLES),
            {"ownership": "nobody"},
            "ownership is 'nobody'; expected one of session, caller",
        ),
        (({"m": MODULE}, EXAMPLES), {"colour": 1}, "engine 'cpu' has no option 'colour'"),
        (
            ({"m": MODULE}, EXAMPLES),
            {"state_ids": {"m": {"k": "x"}}},
            r"state_ids\['m'\]\['k'\] isn't a state; method 'm' has 'cache'",
        ),
        (
            ({"m": MODULE}, EXAMPLES),
            {"state_ids": {"n": {"k": "x"}}},
            r"state_ids\['n'\]\['k'\] isn't a state; method 'n' has none",
        ),
        (
            ({"m": MODULE}, EXAMPLES),
            {"state_ids": {"m": {"cache": ""}}},
            r"state_ids\['m'\]\['cache'\] is empty",
        ),
        (
            ({"m": MODULE, "n": MODULE}, {"m": (X, AT), "n": (X, AT)}),
            {"state_ids": {"m": {"cache": "a"}, "n": {"cache": "b"}}},
            r"state_ids gives the ids 'a', 'b' to one tensor \(m: cache, n: cache\); give it one",
        ),
        (
            ({"m": MODULE, "n": Append(capacity=8)}, {"m": (X, AT), "n": (X, AT)}),
            {"state_ids": {"m": {"cache": "a"}, "n": {"cache": "a"}}},
            r"state 'a' is float32 \[1, 2, 16, 4\] in method 'm' \(cache\), but float32 \[1, 2, 8, 4\] in method 'n'",
        ),
        (
            ({"m": MODULE}, EXAMPLES),
            {"initial_lengths": {"m": {"cache": 17}}},
            "initial length of state 'cache' is 17; its capacity is 16",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_wrong_arguments_are_refused(arguments, options, message):
    with pytest.raises(ExportError, match=message):
        etrt.export(*arguments, **options)


class Function(nn.Module):
    """A module with a cache that is updated as a function says."""

    def __init__(self, function, buffer: torch.Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("cache", cache() if buffer is None else buffer)
        self.function = function

    def forward(self, *inputs: torch.Tensor):
        return self.function(self.cache, *inputs)


def append(store: torch.Tensor, x: torch.Tensor, position: torch.Tensor, dim: int = 2) -> torch.Tensor:
    new = torch.ops.etrt.kv_cache_update(store, x, position, dim)
    store.copy_(new)
    return new.cumsum(dim)


def branch(store, x, position):
    append(store, x, position)
    return torch.cond(position.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))


LONG = torch.tensor([0])


@pytest.mark.parametrize(
    ("module", "inputs", "message"),
    [
        (
            Function(lambda store, x, p: append(store, x, p * 2)),
            (X, LONG),
            "the position of .* has to be an int32 or int64 input of the method",
        ),
        (
            Function(lambda store, x, p: append(store, x, torch.tensor([3]))),
            (X, LONG),
            "the position of .* has to be an int32 or int64 input of the method",
        ),
        (
            Function(append),
            (X, torch.tensor([0.0])),
            "position is float32; expected int32 or int64",
        ),
        (
            Function(append),
            (X, torch.tensor([0, 1])),
            r"position is \[2\]; expected a scalar, \[1\], \[1\] \(an index for each new row\)",
        ),
        (
            Function(append, torch.zeros(3, HEADS, CAPACITY, DIM)),
            (X.expand(3, -1, -1, -1).clone(), torch.tensor([0, 1])),
            r"position is \[2\]; expected a scalar, \[1\], \[3\] \(a start for each batch row\)",
        ),
        (Function(branch), (X, LONG), "control flow .* can't be in an engine"),
        (
            Function(lambda store, x, p: (append(store, x, p), p.item())),
            (X, LONG),
            "output 1 is .*[Ii]nt, not a tensor; pass it as a tensor",
        ),
        (
            Function(append, torch.zeros(1, CAPACITY, HEADS, DIM).transpose(1, 2)),
            (X, LONG),
            r"state 'cache' has strides .*register the buffer with .contiguous\(\)",
        ),
    ],
    ids=[
        "computed position",
        "constant position",
        "float position",
        "two positions for one row",
        "two positions for three batch rows",
        "control flow",
        "an output that is no tensor",
        "a buffer that isn't contiguous",
    ],
)
def test_methods_that_cannot_be_in_an_engine(module, inputs, message):
    with pytest.raises(ExportError, match=message):
        etrt.export(module, inputs)


class Two(nn.Module):
    """Two caches, appended as a function says."""

    def __init__(self, function) -> None:
        super().__init__()
        self.register_buffer("a", cache())
        self.register_buffer("b", cache())
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(self.a, self.b, *inputs)


def test_all_caches_append_at_one_position():
    apart = Two(lambda a, b, x, p, q: append(a, x, p) + append(b, x, q))
    with pytest.raises(
        ExportError, match="all caches of a method append the same number of positions at the"
    ):
        etrt.export(apart, (X, LONG, LONG.clone()))  # torch.export takes one tensor for one input.
    uneven = Two(lambda a, b, x, p: append(a, x, p) + append(b, torch.cat((x, x), 2), p))
    with pytest.raises(
        ExportError, match=r"appends at inputs_1 \(1 positions\), .* at inputs_1 \(2 positions\)"
    ):
        etrt.export(uneven, (X, LONG))


def test_views_of_one_memory_are_refused():
    memory = torch.zeros(2, HEADS, CAPACITY, DIM)
    methods = {"first": Under("a", memory[:1]), "second": Under("b", memory)}
    examples = {"first": (X, LONG), "second": (X.expand(2, -1, -1, -1).clone(), LONG)}
    with pytest.raises(
        ExportError, match=r"'a' of method 'first' and buffer 'b' of method 'second' are different views"
    ):
        etrt.export(methods, examples)


def test_returned_states_are_copied(tmp_path):
    """A recurrent model returns its new state; the caller gets a copy."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("h", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.h.copy_(self.h * 0.5 + x)
            return self.h

    exported = etrt.export(Recurrent(), (torch.ones(4),))
    state = Parts(exported.buffer).states("forward")["h"]
    assert (state.update, state.sequence_dim) == ("swap", None)
    method = save(exported, tmp_path).method("forward")
    with etrt.Session() as session:
        assert method(torch.ones(4))[0].tolist() == [1.0] * 4
        (out,) = method(torch.ones(4))
        assert out.tolist() == session.view("h").tolist() == [1.5] * 4
        assert out.data_ptr() != session.view("h").data_ptr()


# States that methods share, but don't use alike.


def test_a_method_that_writes_whole_makes_the_state_swap_everywhere(caplog):
    shared = cache()
    whole = Function(lambda store, x, p: store.copy_(store * 2) + x + p, shared)
    parts = export({"append": Under("cache", shared), "whole": whole})
    for method in ("append", "whole"):
        assert parts.states(method)["cache"].update == "swap"
        assert parts.states(method)["cache"].sequence_dim is None
    assert "state 'cache' is written whole by method 'whole'" in caplog.text
