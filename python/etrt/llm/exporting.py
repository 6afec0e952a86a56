"""From a GGUF file to a program with the methods prefill and decode."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from etrt.errors import ExportError
from etrt.exporter import Exported, export
from etrt.llm.gguf_file import GgufFile
from etrt.llm.llama import load_llama
from etrt.llm.quantized_linear import quantize_linear_layers
from etrt.llm.tokenizer import build_tokenizer
from etrt.progress import Progress

WEIGHTS = ("fp32", "int8")


@dataclass(frozen=True)
class ModelInfo:
    """What a runner has to know of a program, besides its tokenizer."""

    name: str
    engine: str
    weights: str
    capacity: int
    """Positions of a conversation."""
    prefill_tokens: int
    """The most tokens of one run of prefill."""
    eos_id: int
    chat_template: str
    """Jinja2, of the messages' ``role`` and ``content``."""


def export_llm(
    source: GgufFile,
    path: str | Path,
    *,
    capacity: int = 2048,
    prefill_tokens: int = 128,
    weights: str = "fp32",
    engine: str = "cpu",
    progress: Progress | None = None,
    **engine_options: Any,
) -> Path:
    """Writes the program to ``path``; its tokenizer and ModelInfo are beside it, see ``sidecars``.

    Methods ``prefill`` (tokens int64 [1, 1..prefill_tokens]) and ``decode`` (tokens int64 [1, 1]), both with position
    int64 [1], return the last token's logits, float32 [1, vocabulary]. ``weights`` "int8": those of linear layers,
    a scale for each output; engine "cpu" alone has them.

    Raises:
        ExportError: an argument that can't be; the message says what could.
        OSError: ``path`` can't be written.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ExportError(f"{path.parent} is no folder; make it, or choose another output")
    config = source.config()
    if weights not in WEIGHTS:
        raise ExportError(f"weights is {weights!r}; expected one of {', '.join(WEIGHTS)}")
    if weights == "int8" and engine != "cpu":
        raise ExportError(
            f"weights 'int8' are for engine 'cpu'; {engine!r} takes 'fp32', and computes in float16"
        )
    if not 2 <= prefill_tokens <= capacity:
        raise ExportError(f"prefill_tokens is {prefill_tokens}; expected 2 to the capacity, {capacity}")
    if capacity > config.context_length:
        raise ExportError(
            f"capacity is {capacity}; the model was trained for {config.context_length} positions"
        )
    tell = progress or (lambda stage, done: None)
    tell("reading the weights", 0.0)
    model = load_llama(source, capacity)
    if weights == "int8":
        quantize_linear_layers(model)
    if engine != "cpu":  # TensorRT has no 8-bit tables; float16 holds these codes exactly.
        model.embedding.codes = model.embedding.codes.half()
    info = ModelInfo(
        name=source.path.stem,
        engine=engine,
        weights=weights,
        capacity=capacity,
        prefill_tokens=prefill_tokens,
        eos_id=source.field("tokenizer.ggml.eos_token_id"),
        chat_template=source.field("tokenizer.chat_template"),
    )
    exported = _export(model, info, source, tell, engine_options)
    tokenizer_file, info_file = sidecars(path)
    build_tokenizer(source).save(str(tokenizer_file))
    info_file.write_text(json.dumps(asdict(info), indent=2))
    exported.save(path)  # Last: where there is a program, the files beside it are whole.
    tell("done", 1.0)
    return path


def sidecars(path: str | Path) -> tuple[Path, Path]:
    """Files beside a program: the tokenizer (as the library ``tokenizers`` writes it) and the ModelInfo."""
    path = Path(path)
    return path.with_suffix(".tokenizer.json"), path.with_suffix(".info.json")


def _export(
    model: torch.nn.Module, info: ModelInfo, source: GgufFile, tell: Progress, engine_options: dict[str, Any]
) -> Exported:
    def example(tokens: int) -> tuple[torch.Tensor, ...]:
        return torch.zeros(1, tokens, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)

    tokens = torch.export.Dim("tokens", min=1, max=info.prefill_tokens)
    return export(
        {"prefill": model, "decode": model},
        {"prefill": example(info.prefill_tokens), "decode": example(1)},
        {"prefill": ({1: tokens}, {}), "decode": None},
        engine=info.engine,
        # Names that ExecuTorch's own runners ask for.
        constant_methods={
            "get_vocab_size": source.config().vocabulary,
            "get_max_seq_len": info.prefill_tokens,
            "get_max_context_len": info.capacity,
            "get_bos_id": source.field("tokenizer.ggml.bos_token_id"),
            "get_eos_ids": [info.eos_id],
            "use_kv_cache": True,
            "enable_dynamic_shape": True,
        },
        progress=lambda stage, done: tell(stage, 0.05 + 0.95 * done),
        **engine_options,
    )
