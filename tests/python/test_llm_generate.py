"""The real model through ExecuTorch: the same tokens as eager PyTorch, however its prompt is cut."""

from __future__ import annotations

import pytest
import smollm2
import torch
from etrt.errors import EtrtError, ExportError
from etrt.llm.conversation import Conversation
from etrt.llm.exporting import export_llm
from etrt.llm.gguf_file import GgufFile, find_smollm2
from etrt.llm.llama import load_llama
from etrt.llm.model import LanguageModel
from etrt.llm.sampling import greedy, top_p
from etrt.runtime import stats

PROMPTS = (
    "Explain in a few sentences why the sky is blue.",
    "Write a short story about a lighthouse keeper and a lost ship. It is a stormy night in winter, the lamp has gone "
    "out, and the keeper has to find another way to warn the ship of the rocks. Give it an unexpected end.",
    "List three prime numbers greater than 100 and say how you know that they are prime.",
)
TOKENS = 64


@pytest.fixture(scope="module")
def model():
    return LanguageModel(smollm2.program())


@pytest.fixture(scope="module")
def expected(model):
    """Greedy tokens of eager PyTorch for each prompt."""
    eager = load_llama(GgufFile(find_smollm2()), 256)
    return {prompt: eager_tokens(eager, ids_of(model, prompt), model.info.eos_id) for prompt in PROMPTS}


def ids_of(model: LanguageModel, prompt: str) -> list[int]:
    return model.encode(model.render([{"role": "user", "content": prompt}], ask=True))


@torch.no_grad()
def eager_tokens(eager: torch.nn.Module, ids: list[int], eos_id: int) -> list[int]:
    tokens: list[int] = []
    new, position = ids, 0
    while len(tokens) < TOKENS:
        logits = eager(torch.tensor([new]), torch.tensor([position]))
        position += len(new)
        token = int(logits.argmax())
        if token == eos_id:
            break
        tokens.append(token)
        new = [token]
    return tokens


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_tokens_equal_eager(model, expected, prompt):
    assert len(expected[prompt]) == TOKENS
    copied = stats()["kv_bytes_copied"]
    conversation = Conversation(model)
    assert list(conversation.tokens(ids_of(model, prompt), TOKENS)) == expected[prompt]
    assert conversation.stopped == "max_new_tokens"
    assert stats()["kv_bytes_copied"] == copied


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_prefill_in_chunks_gives_the_same_tokens(model, expected, chunk):
    prompt = PROMPTS[1]
    ids = ids_of(model, prompt)
    assert len(ids) > 64
    got = list(Conversation(model).tokens(ids, 24, chunk=chunk))
    assert got == expected[prompt][:24]


def test_interleaved_conversations_are_each_as_alone(model, expected):
    streams = [Conversation(model).tokens(ids_of(model, prompt), 16) for prompt in PROMPTS]
    together = list(zip(*streams, strict=True))
    for index, prompt in enumerate(PROMPTS):
        assert [tokens[index] for tokens in together] == expected[prompt][:16]


def test_turns_read_new_tokens_alone(model):
    conversation = Conversation(model)
    first = "".join(conversation.say("What is the capital of France?", 40))
    assert conversation.stopped == "eos"
    read, held = conversation.speed.prefill_tokens, conversation.session.length()
    second = "".join(conversation.say("And of Italy?", 40))
    assert "Paris" in first
    assert "Rome" in second
    # What the session holds is the rendered conversation, token for token.
    turns = model.render(conversation.messages, ask=False)
    whole = model.encode(turns.removesuffix("<|im_end|>\n"))
    assert conversation.session.length() == len(whole)
    new = conversation.speed.prefill_tokens - read
    assert new + conversation.speed.decode_tokens < len(whole)
    assert held + new < len(whole)


def test_a_turn_that_was_left_early_is_closed_by_the_next(model):
    conversation = Conversation(model)
    reply = conversation.say("Count from one to twenty.", 64)
    pieces = [next(reply) for _ in range(5)]
    reply.close()
    assert conversation.messages[-1] == {"role": "assistant", "content": "".join(pieces)}
    "".join(conversation.say("Stop. What is two plus two?", 8))
    turns = model.render(conversation.messages[:-1], ask=True)
    assert conversation.session.length() == len(model.encode(turns)) + 7


def test_a_prompt_beyond_the_capacity_leaves_the_session_as_it_was(model):
    conversation = Conversation(model)
    with pytest.raises(EtrtError, match="capacity of 2048: shorten the prompt") as error:
        next(conversation.say("word " * 3000, 4))
    assert error.value.code == "OutOfRange"
    assert (conversation.session.length(), conversation.messages) == (0, [])
    assert "Paris" in "".join(conversation.say("What is the capital of France?", 16))


def test_an_empty_prompt_is_refused(model):
    with pytest.raises(EtrtError, match="prompt is empty"):
        next(Conversation(model).tokens([], 4))


def test_a_conversation_ends_at_the_capacity(model):
    conversation = Conversation(model)
    filler = model.encode("a b c d " * 600)[: model.info.capacity - 2]
    # Two positions are left: the token after the prompt and the next are read, the third is only chosen.
    assert len(list(conversation.tokens(filler, 10))) == 3
    assert conversation.stopped == "capacity"


def test_a_seed_repeats_the_text(model):
    ids = ids_of(model, PROMPTS[1])
    runs = [list(Conversation(model, top_p(1.0, 0.95, seed)).tokens(ids, 8)) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_sampling():
    logits = torch.tensor([[0.0, 5.0, 1.0]])
    assert greedy(logits) == 1
    assert {top_p(1.0, 0.5, seed)(logits) for seed in range(20)} == {1}
    assert {top_p(100.0, 1.0, seed)(logits) for seed in range(50)} == {0, 1, 2}
    with pytest.raises(ValueError, match="temperature is 0"):
        top_p(0.0)
    with pytest.raises(ValueError, match=r"top_p is 1\.5"):
        top_p(1.0, 1.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"capacity": 9000}, "trained for 8192 positions"),
        ({"capacity": 64}, "prefill_tokens is 128; expected 2 to the capacity, 64"),
        ({"weights": "int4"}, "weights is 'int4'; expected one of fp32, int8"),
        ({"weights": "int8", "engine": "tensorrt_rtx"}, "weights 'int8' are for engine 'cpu'"),
    ],
)
def test_settings_that_cannot_be(tmp_path, settings, message):
    with pytest.raises(ExportError, match=message):
        export_llm(GgufFile(find_smollm2()), tmp_path / "x.pte", **settings)
    assert list(tmp_path.iterdir()) == []
