"""One conversation: a session, and what has been said in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from tokenizers.decoders import DecodeStream

from etrt.errors import EtrtError
from etrt.llm.model import LanguageModel, Message
from etrt.llm.sampling import Sampler, greedy
from etrt.runtime import Session


@dataclass
class Speed:
    """Tokens and seconds of the runs so far."""

    prefill_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_tokens: int = 0
    decode_seconds: float = 0.0

    @property
    def prefill_rate(self) -> float:
        """Tokens per second; 0 before the first."""
        return self.prefill_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens per second; 0 before the first."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0


class Conversation:
    """Turns of a user and the model. The session keeps what was said: a turn runs new tokens alone.

    Its generators may be advanced in turn with those of other conversations.
    """

    def __init__(self, model: LanguageModel, sampler: Sampler = greedy) -> None:
        self.model, self.sampler = model, sampler
        self.session = Session()
        self.speed = Speed()
        self.messages: list[Message] = []
        self.stopped = ""
        """Why the last reply ended: ``eos``, ``max_new_tokens`` or ``capacity``."""
        self._unread: list[int] = []
        """Chosen, but not in the session yet."""

    def say(self, text: str, max_new_tokens: int) -> Iterator[str]:
        """The reply, piece by piece. One that isn't taken to its end counts as far as it was taken.

        Raises:
            EtrtError: ``OutOfRange`` if the turn doesn't fit; the conversation is then as before.
        """
        messages = [*self.messages, {"role": "user", "content": text}]
        said = self.model.render(self.messages, ask=False) if self.messages else ""
        asked = self.model.render(messages, ask=True)
        prompt = [*self._end_of_turn(), *self.model.encode(asked[len(said) :])]
        self._check_room(prompt)
        reply = ""
        stream = DecodeStream(skip_special_tokens=True)
        try:
            for token in self.tokens(prompt, max_new_tokens):
                piece = stream.step(self.model.tokenizer, token)
                if piece:
                    reply += piece
                    yield piece
        finally:
            self.messages = [*messages, {"role": "assistant", "content": reply}]

    def tokens(self, prompt: list[int], max_new_tokens: int, chunk: int | None = None) -> Iterator[int]:
        """Reads ``prompt`` and yields the tokens that follow, without one that ends the text.

        Args:
            prompt: ids, at least one.
            max_new_tokens: most to yield.
            chunk: most to read in one run; None: as many as the program takes.

        Raises:
            EtrtError: ``OutOfRange`` if the prompt doesn't fit into the session, which is then as before;
                ``InvalidArgument`` if there is nothing to read.
        """
        self._check_room(prompt)
        logits = self._read(prompt, chunk or self.model.info.prefill_tokens)
        for count in range(1, max_new_tokens + 1):
            token = self.sampler(logits)
            self._unread = [token]
            if token == self.model.info.eos_id:
                self.stopped = "eos"
                return
            yield token
            if count == max_new_tokens:
                break
            if self.session.length() == self.model.info.capacity:
                self.stopped = "capacity"
                return
            logits = self._decode(token)
        self.stopped = "max_new_tokens"

    def _end_of_turn(self) -> list[int]:
        """Tokens that the session lacks of the last turn."""
        if not self.messages:
            return []
        asked = self.model.render(self.messages[:-1], ask=True)
        turns = self.model.render(self.messages, ask=False)
        end = self.model.encode(turns[len(asked) + len(self.messages[-1]["content"]) :])
        return end if self._unread == end[:1] else [*self._unread, *end]

    def _check_room(self, prompt: list[int]) -> None:
        if not prompt:
            raise EtrtError("the prompt is empty; give at least one token", "InvalidArgument")
        capacity, length = self.model.info.capacity, self.session.length()
        if length + len(prompt) > capacity:
            raise EtrtError(
                f"the prompt has {len(prompt)} tokens and the session {length}, more than its capacity of "
                f"{capacity}: shorten the prompt, or export with a larger --capacity",
                "OutOfRange",
            )

    def _read(self, prompt: list[int], chunk: int) -> torch.Tensor:
        start = time.perf_counter()
        position = self.session.length()
        for begin in range(0, len(prompt), chunk):
            logits = self._run("prefill", prompt[begin : begin + chunk], position + begin)
        self._unread = []
        self.speed.prefill_tokens += len(prompt)
        self.speed.prefill_seconds += time.perf_counter() - start
        return logits

    def _decode(self, token: int) -> torch.Tensor:
        start = time.perf_counter()
        logits = self._run("decode", [token], self.session.length())
        self._unread = []
        self.speed.decode_tokens += 1
        self.speed.decode_seconds += time.perf_counter() - start
        return logits

    def _run(self, method: str, tokens: list[int], position: int) -> torch.Tensor:
        run = self.model.prefill if method == "prefill" else self.model.decode
        with self.session:
            return run(torch.tensor([tokens]), torch.tensor([position]))[0]
