"""``etrt generate``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from etrt.cli.options import CapacityOption, ModelOption, PrefillOption, WeightsOption


def generate_command(
    prompt: Annotated[str, typer.Option(help="What to say to the model.")],
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Most tokens to generate.")] = 128,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the likeliest token, always.")] = False,
    temperature: Annotated[float, typer.Option(help="Without --greedy: more is more varied.")] = 0.7,
    top_p: Annotated[float, typer.Option(help="Without --greedy: part of the probability kept.")] = 0.9,
    seed: Annotated[int | None, typer.Option(help="Without --greedy: makes the text repeatable.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the prompt as it is, without chat.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    model: ModelOption = None,
    weights: WeightsOption = "fp32",
    capacity: CapacityOption = 2048,
    prefill_tokens: PrefillOption = 128,
) -> None:
    """Let a model answer a prompt."""
    from tokenizers.decoders import DecodeStream

    from etrt.cli.loading import load_model
    from etrt.cli.memory import peak_rss_bytes
    from etrt.llm import sampling
    from etrt.llm.conversation import Conversation
    from etrt.runtime import stats

    sampler = sampling.greedy if greedy else sampling.top_p(temperature, top_p, seed)
    if not prompt:
        raise typer.BadParameter("--prompt is empty")
    language_model = load_model(model, weights, capacity, prefill_tokens)
    conversation = Conversation(language_model, sampler)
    text = prompt if raw else language_model.render([{"role": "user", "content": prompt}], ask=True)
    ids = language_model.encode(text)
    tokens = []
    stream = DecodeStream(skip_special_tokens=True)
    for token in conversation.tokens(ids, max_new_tokens):
        tokens.append(token)
        if not as_json:
            sys.stdout.write(stream.step(language_model.tokenizer, token) or "")
            sys.stdout.flush()
    if not as_json:
        sys.stdout.write("\n")
        return
    result = {
        "text": language_model.decode_text(tokens),
        "prompt_tokens": len(ids),
        "tokens": tokens,
        "stopped": conversation.stopped,
        "prefill_tokens_per_second": round(conversation.speed.prefill_rate, 2),
        "decode_tokens_per_second": round(conversation.speed.decode_rate, 2),
        "session_bytes": conversation.session.bytes(),
        "kv_bytes_copied": stats()["kv_bytes_copied"],
        "peak_rss_bytes": peak_rss_bytes(),
    }
    sys.stdout.write(json.dumps(result, ensure_ascii=False) + "\n")
