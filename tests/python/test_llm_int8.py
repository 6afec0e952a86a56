"""8-bit weights: the model's first layers through ExecuTorch and XNNPACK, against eager PyTorch on the same codes."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from etrt.llm.conversation import Conversation
from etrt.llm.exporting import export_llm
from etrt.llm.gguf_file import GgufFile, find_smollm2
from etrt.llm.llama import load_llama
from etrt.llm.model import LanguageModel
from etrt.llm.quantized_linear import QuantizedLinear, quantize_linear_layers
from etrt.runtime import stats

CAPACITY = 128
PROMPT = "Explain in a few sentences why the sky is blue."


class FirstLayers(GgufFile):
    """Two layers are enough: each operator is there."""

    def config(self):
        return dataclasses.replace(super().config(), layers=2)


@pytest.fixture(scope="module")
def source():
    return FirstLayers(find_smollm2())


@pytest.fixture(scope="module")
def model(source, tmp_path_factory):
    path = tmp_path_factory.mktemp("int8") / "model.pte"
    return LanguageModel(export_llm(source, path, capacity=CAPACITY, prefill_tokens=64, weights="int8"))


@pytest.fixture(scope="module")
def eager(source):
    llama = load_llama(source, CAPACITY)
    quantize_linear_layers(llama)
    return llama


@torch.no_grad()
def eager_tokens(eager: torch.nn.Module, ids: list[int], count: int) -> list[int]:
    tokens: list[int] = []
    new, position = ids, 0
    while len(tokens) < count:
        logits = eager(torch.tensor([new]), torch.tensor([position]))
        position += len(new)
        new = [int(logits.argmax())]
        tokens += new
    return tokens


@pytest.mark.parametrize("chunk", [None, 7])
def test_tokens_equal_eager_on_the_same_codes(model, eager, chunk):
    ids = model.encode(model.render([{"role": "user", "content": PROMPT}], ask=True))
    expected = eager_tokens(eager, ids, 32)
    chunks = {} if chunk is None else {"chunk": chunk}
    copied = stats()["kv_bytes_copied"]
    assert list(Conversation(model).tokens(ids, 32, **chunks)) == expected
    assert stats()["kv_bytes_copied"] == copied


def test_a_weight_is_a_byte_in_the_file(model, eager):
    layers = [module for module in eager.modules() if isinstance(module, QuantizedLinear)]
    assert not [module for module in eager.modules() if isinstance(module, torch.nn.Linear)]
    weights = sum(layer.weight.numel() for layer in layers)
    rest = sum(b.numel() * b.element_size() for b in eager.buffers()) - sum(
        b.numel() * b.element_size() for layer in layers for b in layer.buffers()
    )
    assert model.path.stat().st_size < 1.1 * weights + rest + (1 << 20)


def test_a_weight_is_half_a_step_off_at_most():
    weight = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
    weight[3] = 0
    layer = QuantizedLinear(weight)
    restored = layer.weight * layer.scales.unsqueeze(1)
    step = weight.abs().amax(1, keepdim=True) / 127
    assert ((restored - weight).abs() <= step / 2 * (1 + 1e-4)).all()
    assert (restored[3] == 0).all()
