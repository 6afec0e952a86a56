"""Tokenizer, chat template and weights of the GGUF."""

from __future__ import annotations

import pytest
import torch
from etrt.errors import ExportError
from etrt.llm.gguf_file import GgufFile, find_smollm2
from etrt.llm.llama import BlockEmbedding, _halves
from etrt.llm.tokenizer import build_tokenizer


@pytest.fixture(scope="module")
def source():
    return GgufFile(find_smollm2())


@pytest.fixture(scope="module")
def tokenizer(source):
    return build_tokenizer(source)


@pytest.mark.parametrize(
    "text",
    [
        "Hello, world!",
        "  two  spaces\n\n\tand a tab ",
        "naïve café, 日本語, Ελληνικά, 🙂👩‍👩‍👧",
        "1234567890 and 3.14",
        "<|im_start|>user\nhi<|im_end|>\n",
        "def f(x):\n    return {'a': x[0]}\r\n",
        # The model knows no token for a few control characters below this.
        "".join(map(chr, range(0x20, 0x300))),
    ],
)
def test_text_comes_back_as_it_was(tokenizer, text):
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_digits_are_tokens_of_their_own(tokenizer):
    assert tokenizer.encode("1234").tokens == ["1", "2", "3", "4"]


def test_words_take_the_space_before_them(tokenizer):
    assert tokenizer.encode("The capital of France is").tokens == ["The", "Ġcapital", "Ġof", "ĠFrance", "Ġis"]


def test_special_tokens_are_one_token_and_no_text(tokenizer, source):
    ids = tokenizer.encode("<|im_start|>hi<|im_end|>").ids
    assert (ids[0], ids[-1]) == (1, 2)
    assert source.field("tokenizer.ggml.eos_token_id") == 2
    assert tokenizer.decode(ids) == "hi"


def test_saved_tokenizer_is_the_same(tokenizer, tmp_path):
    from tokenizers import Tokenizer

    tokenizer.save(str(tmp_path / "t.json"))
    again = Tokenizer.from_file(str(tmp_path / "t.json"))
    text = "<|im_start|>user\nWhat's 12 x 34?<|im_end|>\n"
    assert again.encode(text).ids == tokenizer.encode(text).ids


def test_embedding_rows_are_the_output_layers_exactly(source):
    embedding = BlockEmbedding(source.embedding("token_embd.weight"))
    tokens = torch.tensor([0, 1, 2, 777, 49151])
    assert torch.equal(embedding(tokens), source.weight("token_embd.weight")[tokens])


def test_halves_are_the_pairs_apart():
    rows = torch.arange(8.0).view(8, 1)  # Two heads of dim 4; (0, 1) is a pair.
    first, second = _halves(rows, 4)
    assert first.flatten().tolist() == [0, 2, 4, 6]
    assert second.flatten().tolist() == [1, 3, 5, 7]


def test_missing_tensor_and_field_are_named(source):
    with pytest.raises(ExportError, match=r"no tensor 'blk\.99\.attn_q\.weight'"):
        source.weight("blk.99.attn_q.weight")
    with pytest.raises(ExportError, match="no field 'nothing'"):
        source.field("nothing")
    with pytest.raises(ExportError, match="expected Q8_0"):
        source.embedding("blk.0.attn_q.weight")


def test_what_is_no_gguf_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        GgufFile(tmp_path / "none.gguf")
    (tmp_path / "text.gguf").write_text("this is no model, whatever its name says")
    with pytest.raises(ExportError, match="no GGUF file"):
        GgufFile(tmp_path / "text.gguf")
