"""A language model's program, loaded once; conversations run on it."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from etrt.errors import EtrtError
from etrt.llm.exporting import ModelInfo, sidecars
from etrt.runtime import Program

Message = dict[str, str]
"""``role`` and ``content``."""


class LanguageModel:
    """What ``export_llm`` wrote. One thread at a time.

    Raises:
        FileNotFoundError: the program, or a file that belongs beside it, isn't there.
        EtrtError: the program is damaged or has no methods ``prefill`` and ``decode``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        tokenizer_file, info_file = sidecars(path)
        program = Program(path)
        for file in (tokenizer_file, info_file):
            if not file.is_file():
                raise FileNotFoundError(f"{file} is missing; it belongs to {path}: export the model again")
        try:
            self.info = ModelInfo(**json.loads(info_file.read_text()))
        except (ValueError, TypeError) as error:
            raise EtrtError(
                f"{info_file} is damaged ({error}): export the model again", "InvalidData"
            ) from error
        self.tokenizer: Tokenizer = Tokenizer.from_file(str(tokenizer_file))
        self.prefill = program.method("prefill")
        self.decode = program.method("decode")
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template: jinja2.Template = environment.from_string(self.info.chat_template)

    def encode(self, text: str) -> list[int]:
        """Token ids; special tokens may be written out, like <|im_end|>."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode_text(self, tokens: list[int]) -> str:
        """The text of ids, without special tokens."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True)

    def render(self, messages: list[Message], *, ask: bool) -> str:
        """The model's own form of a conversation; ``ask``: up to where its reply begins."""
        return self._template.render(messages=messages, add_generation_prompt=ask)
