"""Plans for TensorRT-RTX, built for real on a machine without a GPU."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace

import pytest
import torch
from etrt import blob, engines
from etrt.engine_tensorrt import TensorRTRTXEngineBuilder, prepare
from etrt.engines import BuiltEngine
from etrt.errors import ExportError
from etrt.exporter import export
from etrt.kv_cache import KVCache
from etrt.tensorrt.load import gpu_queries_answered, load
from etrt.tensorrt.network import Network
from etrt.tensorrt.profiles import Networks, Profile, profile_of
from executorch.exir._serialize._program import deserialize_pte_binary
from models import Decoder, fill
from torch import nn
from torch.export import Dim

CAPABILITIES = [(8, 6), (8, 9), (12, 0)]
LAYERS = ("layers.0.attention.cache", "layers.1.attention.cache")
STATES = [f"{layer}.{name}" for layer in LAYERS for name in ("k", "v")]


def _inputs(tokens: int, start: int = 0):
    return torch.arange(tokens).view(1, -1) % 64, torch.tensor([start])


def _methods(module: nn.Module, most: int = 16):
    """Arguments of ``export``: prefill (1 to ``most`` tokens) and decode (1 token)."""
    return (
        {"prefill": module, "decode": module},
        {"prefill": _inputs(3), "decode": _inputs(1)},
        {"prefill": ({1: Dim("tokens", min=1, max=most)}, None)},
    )


def _entries(*arguments, **options):
    """The entries that the engine's builder gets from ``export`` with these arguments."""
    taken = []

    class Taker(TensorRTRTXEngineBuilder):
        def build(self, entries, options):
            taken.extend(entries)
            return [BuiltEngine(b"plan", {entry.name: entry.name for entry in entries})]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "find_engine_builder", lambda kind: Taker())
        patch.setattr("etrt.partitioner.find_engine_builder", lambda kind: Taker())
        patch.setattr("etrt.backend.find_engine_builder", lambda kind: Taker())
        export(*arguments, engine="tensorrt_rtx", compute_capabilities=CAPABILITIES, **options)
    return taken


def _parts(buffer: bytes):
    """Container of each method, and the program's named data."""
    file = deserialize_pte_binary(buffer)
    containers = {
        plan.name: [
            blob.read(file.program.backend_delegate_data[d.processed.index].data) for d in plan.delegates
        ]
        for plan in file.program.execution_plan
    }
    named = {
        key: file.named_data.buffers[entry.buffer_index] for key, entry in file.named_data.pte_data.items()
    }
    return containers, named


@pytest.fixture(scope="module")
def rtx():
    return load("tensorrt_rtx")


@pytest.fixture(scope="module")
def exported():
    """The small decoder in fp16, and what was told of the progress."""
    told = []
    methods, examples, shapes = _methods(fill(Decoder()))
    program = export(
        methods,
        examples,
        shapes,
        engine="tensorrt_rtx",
        compute_capabilities=CAPABILITIES,
        precision="fp16",
        progress=lambda stage, done: told.append((stage, done)),
    )
    containers, named = _parts(program.buffer)
    return {method: found for method, (found,) in containers.items()}, named, told


def test_methods_share_one_plan_with_a_profile_each(exported):
    containers, named, _ = exported
    assert {method: c.engine_entry for method, c in containers.items()} == {"prefill": "0", "decode": "1"}
    (key,) = {c.engine_key for c in containers.values()}
    assert [name for name in named if not name.endswith(".info")] == [key]
    for container in containers.values():
        assert container.engine == b""
        assert container.engine_digest == blob.digest(named[key])
        assert (container.version, container.engine_kind) == ("TR03", "tensorrt_rtx")
        assert container.target_platform == "linux_x86_64"


def test_the_plan_is_one_of_tensorrt_rtx(exported):
    containers, named, _ = exported
    plan = named[containers["decode"].engine_key]
    assert plan[:4] == b"vtrt"  # What its plans begin with; those of TensorRT 8.6 begin with ftrt.
    assert len(plan) > 1 << 20


def test_caches_are_half_and_in_place(exported):
    containers, _, _ = exported
    for container in containers.values():
        assert [(s.id, s.dtype, list(s.shape), s.update, s.sequence_dim) for s in container.states] == [
            (id_, "float16", [1, 2, 32, 8], "in_place", 2) for id_ in STATES
        ]
        assert container.aliases == [
            blob.Alias(f"next_state.{id_}", f"state.{id_}", "kv_cache_update", "session", id_)
            for id_ in STATES
        ]


def test_arguments_keep_their_types(exported):
    containers, _, _ = exported
    for method, tokens in (("prefill", -1), ("decode", 1)):
        own = [b for b in containers[method].bindings if "state." not in b.name]
        assert [(b.name, b.dtype, list(b.shape)) for b in own] == [
            ("tokens", "int64", [1, tokens]),
            ("position", "int64", [1]),
            ("output_0", "float32", [1, tokens, 64]),
        ]
    assert containers["prefill"].position == blob.Position("position", blob.Count("tokens", 1))
    assert containers["decode"].position == blob.Position("position", blob.Count(value=1))


def test_progress_goes_forward_through_the_builder(exported):
    _, _, told = exported
    parts = [done for _, done in told]
    assert parts == sorted(parts)
    assert (parts[0], parts[-1]) == (0.0, 1.0)
    phases = {stage for stage, _ in told if stage.startswith("building the TensorRT engine: ")}
    assert len(phases) > 3


def test_gpu_queries_are_answered_only_inside(rtx):
    assert not torch.cuda.is_available(), "this test is for machines without a GPU"
    with gpu_queries_answered():
        assert torch.cuda.get_device_capability() == (8, 9)
    with pytest.raises(RuntimeError, match="NVIDIA driver"):
        torch.cuda.get_device_capability()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_network(rtx, precision):
    (part,) = prepare(_entries(*_methods(fill(Decoder()))), precision)
    network = Network(rtx, part.graph_module, part.interface).definition
    cache = rtx.trt.DataType.HALF if precision == "fp16" else rtx.trt.DataType.FLOAT
    inputs = [network.get_input(i) for i in range(network.num_inputs)]
    assert [(t.name, t.dtype, tuple(t.shape)) for t in inputs] == [
        ("tokens", rtx.trt.DataType.INT64, (1, -1)),
        ("position", rtx.trt.DataType.INT64, (1,)),
        *((f"state.{id_}", cache, (1, 2, 32, 8)) for id_ in STATES),
    ]
    outputs = [network.get_output(i) for i in range(network.num_outputs)]
    assert [(t.name, t.dtype) for t in outputs] == [
        ("output_0", rtx.trt.DataType.FLOAT),
        *((f"next_state.{id_}", cache) for id_ in STATES),
    ]
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    updates = [layer for layer in layers if layer.type == rtx.trt.LayerType.KV_CACHE_UPDATE]
    assert {(u.get_input(0).name, u.get_output(0).name) for u in updates} == {
        (f"state.{id_}", f"next_state.{id_}") for id_ in STATES
    }
    products = Counter(
        layer.get_output(0).dtype for layer in layers if layer.type == rtx.trt.LayerType.MATRIX_MULTIPLY
    )
    assert products == {cache: 19}  # Seven linear layers and two products a layer, and the head.


def test_profiles_start_at_one():
    entries = {e.name: e for e in _entries(*_methods(fill(Decoder())))}
    state = (1, 2, 32, 8)
    rest = ((1,), state, state, state, state)
    assert profile_of(entries["prefill"]) == Profile(((1, 1), *rest), ((1, 16), *rest))
    assert profile_of(entries["decode"]) == Profile(((1, 1), *rest), ((1, 1), *rest))


class Scaled(nn.Module):
    """Appends x to a cache [1, 16, 4] and returns scale times the sum of what is in it."""

    def __init__(self, scale: float = 2.0, cache: torch.Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 16, 4) if cache is None else cache)
        self.scale = nn.Parameter(torch.full((4,), scale))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        new = torch.ops.etrt.kv_cache_update(self.cache, x, position, 1)
        self.cache.copy_(new)
        return new.sum(1) * self.scale


class Halved(Scaled):
    """Another computation on the same cache."""

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return super().forward(x, position) / 2


def _scaled(first: nn.Module, second: nn.Module, same_range: bool = False):
    tokens = {1: Dim("tokens", min=1, max=8)}
    return (
        {"first": first, "second": second},
        {name: (torch.ones(1, 3, 4), torch.tensor([0])) for name in ("first", "second")},
        {"first": (tokens, None), "second": (tokens, None) if same_range else None},
    )


def test_equal_computations_are_one_network():
    cache = torch.zeros(1, 16, 4)
    same = _entries(*_scaled(Scaled(2.0, cache), Scaled(2.0, cache)))
    assert [[e.name for e in group] for group in Networks().group(same)] == [["first", "second"]]
    for other in (Scaled(3.0, cache), Halved(2.0, cache)):
        apart = _entries(*_scaled(Scaled(2.0, cache), other))
        assert [[e.name for e in group] for group in Networks().group(apart)] == [["first"], ["second"]]


def test_names_of_bindings_tell_networks_apart():
    first, second = _entries(*_scaled(module := Scaled(), module))
    assert Networks().same(first, second)
    second.inputs[0] = replace(second.inputs[0], name="y")
    assert not Networks().same(first, second)


def test_different_computations_get_a_plan_each(caplog):
    """And a cache that IKVCacheUpdateLayer doesn't take is written whole."""
    cache = torch.zeros(1, 16, 4)
    methods, examples, shapes = _scaled(Scaled(2.0, cache), Halved(2.0, cache))
    with caplog.at_level(logging.WARNING, logger="etrt"):
        program = export(methods, examples, shapes, engine="tensorrt_rtx", compute_capabilities=[(8, 9)])
    assert "state 'cache' is written whole" in caplog.text
    containers, named = _parts(program.buffer)
    assert len({found.engine_key for (found,) in containers.values()}) == 2
    assert len([name for name in named if not name.endswith(".info")]) == 2
    for (found,) in containers.values():
        assert found.engine_entry == "0"
        assert [(s.id, s.update, s.dtype) for s in found.states] == [("cache", "swap", "float32")]
        assert found.aliases == []


class Append(nn.Module):
    """Appends to a KVCache and returns attention over it."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.cache = KVCache(batch, 2, 16, 4)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        k, v = self.cache.update(x, x * 2, position)
        return (x @ k.transpose(-1, -2)).softmax(-1) @ v


def _run(part, entry, arguments, states):
    """Runs a part's graph as TensorRT would: outputs by name; states as they are afterwards."""
    feed = dict(zip((t.name for t in entry.inputs), arguments, strict=False)) | states
    results = part.graph_module(*(feed[name] for name in part.interface.inputs))
    by_name = dict(zip(part.interface.outputs, results, strict=True))
    return by_name, {s.input: by_name[s.output] for s in entry.states}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize(
    ("batch", "position"),
    [
        (1, lambda start, tokens: torch.tensor(start)),
        (1, lambda start, tokens: torch.tensor([start], dtype=torch.int32)),
        (1, lambda start, tokens: torch.arange(start, start + tokens)),
        (2, lambda start, tokens: torch.tensor(start)),
        (2, lambda start, tokens: torch.tensor([start])),
        (2, lambda start, tokens: torch.tensor([start, start + 2])),
    ],
    ids=["scalar", "one int32", "each token", "batch scalar", "batch one", "batch each"],
)
def test_positions(rtx, batch, position, precision):
    module = Append(batch)
    steps = [(0, 3), (3, 1), (4, 5)]
    first = (torch.ones(batch, 2, 3, 4), position(0, 3))
    tokens = Dim("tokens", min=1, max=8)
    per_token = {0: tokens} if first[1].dim() == 1 and first[1].shape[0] == 3 else None
    (entry,) = entries = _entries(
        {"forward": module}, {"forward": first}, {"forward": ({2: tokens}, per_token)}
    )
    (part,) = prepare(entries, precision)
    dtype = torch.float16 if precision == "fp16" else torch.float32
    assert [s.in_place for s in entry.states] == [True, True]
    states = {s.input: torch.zeros(batch, 2, 16, 4, dtype=dtype) for s in entry.states}
    generator = torch.Generator().manual_seed(1)
    for start, count in steps:
        x = torch.rand(batch, 2, count, 4, generator=generator)
        outputs, states = _run(part, entry, (x, position(start, count)), states)
        expected = module(x, position(start, count))
        tolerance = {"rtol": 2e-3, "atol": 2e-3} if precision == "fp16" else {"rtol": 1e-5, "atol": 1e-6}
        torch.testing.assert_close(outputs["output_0"], expected, **tolerance)
        for state in entry.states:
            assert states[state.input].dtype == dtype
            buffer = module.get_buffer(state.id)
            torch.testing.assert_close(states[state.input].float(), buffer, **tolerance)


@pytest.mark.parametrize("batch", [1, 2])
def test_a_cache_written_whole(rtx, batch):
    """The select that stands for the layer, at every place in the cache, with static and dynamic extents."""

    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.arange(batch * 16 * 4.0).view(batch, 16, 4))

        def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
            new = torch.ops.etrt.kv_cache_update(self.cache, x, position, 1)
            self.cache.copy_(new)
            return new * 2

    for shapes in ({"forward": ({1: Dim("tokens", min=1, max=8)}, None)}, None):
        module = Other()
        example = (torch.ones(batch, 3, 4), torch.zeros(batch, dtype=torch.int64))
        (entry,) = entries = _entries({"forward": module}, {"forward": example}, shapes)
        (part,) = prepare(entries, "fp16")
        assert [s.in_place for s in entry.states] == [False]
        states = {"state.cache": module.cache.clone()}
        for start in (0, 13, 5):
            x = torch.full((batch, 3, 4), -1.0 - start)
            position = torch.tensor([start, start // 2][:batch])
            outputs, states = _run(part, entry, (x, position), states)
            torch.testing.assert_close(outputs["output_0"], module(x, position))
            torch.testing.assert_close(states["state.cache"], module.cache)


def test_a_cache_that_is_read_apart_from_its_update_is_not_in_place(rtx):
    class Both(Append):
        def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
            before = self.cache.k.sum() + 0
            return super().forward(x, position) + before

    (entry,) = entries = _entries(
        {"forward": Both(1)}, {"forward": (torch.ones(1, 2, 3, 4), torch.tensor([0]))}
    )
    prepare(entries, "fp32")
    assert {s.id: s.in_place for s in entry.states} == {"cache.k": False, "cache.v": True}


def test_half_precision_keeps_the_decoder_right(rtx):
    """Prefill and decode of the whole decoder, against the module in fp32."""
    module = fill(Decoder())
    (part,) = prepare(_entries(*_methods(module)), "fp16")
    entry = part.leader
    assert entry.name == "prefill"
    states = {s.input: torch.zeros(1, 2, 32, 8, dtype=torch.float16) for s in entry.states}
    start = 0
    for count in (7, 1, 1, 4):
        tokens = (torch.arange(start, start + count) * 5 % 64).view(1, -1)
        with torch.no_grad():
            outputs, states = _run(part, entry, (tokens, torch.tensor([start])), states)
            expected = module(tokens, torch.tensor([start]))
        assert outputs["output_0"].dtype == torch.float32
        torch.testing.assert_close(outputs["output_0"], expected, rtol=1e-2, atol=1e-2)
        start += count


def test_half_precision_survives_large_activations(rtx):
    """A norm's squares overflow float16 long before its inputs do; so it is computed in float32."""

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.RMSNorm(64, eps=1e-5)
            self.linear = nn.Linear(64, 64, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.linear(x))

    module = fill(Norm())
    x = torch.linspace(-300, 300, 64).view(1, 64)
    assert module.linear(x).abs().max() > 256  # 256 squared is more than float16 holds.
    (part,) = prepare(_entries({"forward": module}, {"forward": (x,)}), "fp16")
    (result,) = part.graph_module(x)
    torch.testing.assert_close(result, module(x), rtol=5e-3, atol=5e-3)
    linear = next(n for n in part.graph_module.graph.nodes if n.target == torch.ops.aten.linear.default)
    assert linear.meta["val"].dtype == torch.float16


def _export(module=None, shapes=None, examples=None, **options):
    settings = {"engine": "tensorrt_rtx", "compute_capabilities": [(8, 9)], **options}
    module = module or Append(1)
    return export(
        {"forward": module},
        {"forward": examples or (torch.ones(1, 2, 3, 4), torch.tensor([0]))},
        shapes,
        **settings,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compute_capabilities": None}, "needs compute_capabilities on a machine without a GPU"),
        (
            {"compute_capabilities": [(9, 0)]},
            r"\(9, 0\) isn't one that tensorrt_rtx .* builds for: \(7, 5\), \(8, 0\)",
        ),
        ({"compute_capabilities": [89]}, r"compute_capabilities is \[89\]; expected pairs"),
        ({"compute_capabilities": [(8, 9), (8, 9)]}, "names one twice"),
        ({"precision": "int4"}, "precision is 'int4'; expected one of fp32, fp16"),
        ({"speed": "fast"}, "engine 'tensorrt_rtx' has no option 'speed'"),
        ({"engine": "tensorrt"}, "engine 'tensorrt' needs .* install TensorRT's SDK"),
    ],
)
def test_refuses_options(options, message):
    with pytest.raises(ExportError, match=message):
        _export(**options)


def test_refuses_an_extent_without_a_bound():
    with pytest.raises(
        ExportError, match=r"input x has an extent .* without an upper bound: give its Dim a max"
    ):
        _export(shapes={"forward": ({2: Dim("tokens")}, None)})


def test_refuses_an_operator_without_a_converter():
    class Strange(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.fold(x, output_size=(4, 4), kernel_size=2)

    with pytest.raises(ExportError, match=r"no converter to TensorRT for .*index_put"):
        _export(Strange(), examples=(torch.ones(1, 4, 9),))
