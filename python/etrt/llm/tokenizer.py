"""A tokenizer from a GGUF's own vocabulary and merges."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from etrt.errors import ExportError
from etrt.llm.gguf_file import GgufFile

# Values of tokenizer.ggml.token_type.
_CONTROL, _USER_DEFINED = 3, 4


def build_tokenizer(file: GgufFile) -> Tokenizer:
    """Byte-level BPE as the model was trained with; text in gives the same text out.

    Raises:
        ExportError: the file's tokenizer is of another kind.
    """
    kind, split = file.field("tokenizer.ggml.model"), file.field("tokenizer.ggml.pre")
    if (kind, split) != ("gpt2", "smollm"):
        raise ExportError(f"{file.path} has a tokenizer {kind}/{split}; expected gpt2/smollm")
    tokens = file.field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in file.field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: id_ for id_, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = file.field("tokenizer.ggml.token_type")
    tokenizer.add_special_tokens(
        [AddedToken(t, normalized=False) for t, type_ in zip(tokens, types, strict=True) if type_ == _CONTROL]
    )
    tokenizer.add_tokens(
        [
            AddedToken(t, normalized=False)
            for t, type_ in zip(tokens, types, strict=True)
            if type_ == _USER_DEFINED
        ]
    )
    return tokenizer
