"""Chat templates, and text from and to token ids.

Invariants: what a template opens for the model (`<think>` after the generation prompt) is read
from the end of the prompt ids alone, so that an engine which gets only ids (a node's) and one that
rendered the messages find the same prefix. Text is always valid Unicode: cut-off UTF-8 becomes
U+FFFD.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from transformers import AutoTokenizer

from infra.inference.errors import PromptError
from infra.inference.protocol import Message

OPENED_TAG = re.compile(r"<[A-Za-z][A-Za-z0-9_-]*>\s*\Z")
"""A tag such as <think> as the last thing of a prompt; `</think>` and `<|im_start|>` are none."""

TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9_-]*>\Z")

TAIL_TOKENS = 24
"""Enough for a tag of a few letters spelled out by a character tokenizer, and white space."""


class ChatTokenizer:
    """A model directory's tokenizer with its chat template."""

    def __init__(self, model_dir: Path, model_id: str):
        self.model_id = model_id
        self._tokenizer: Any = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
        # Tags like <think> are part of the answer, even where a tokenizer calls them special.
        special = {i for i, token in self._tokenizer.added_tokens_decoder.items() if token.special}
        self._hidden_ids = frozenset(
            i
            for i in special.union(self._tokenizer.all_special_ids)
            if not TAG.fullmatch(self._tokenizer.convert_ids_to_tokens(i))
        )

    @property
    def eos_ids(self) -> frozenset[int]:
        """The tokenizer's own end-of-sequence id, if it has one."""
        eos = self._tokenizer.eos_token_id
        return frozenset() if eos is None else frozenset({int(eos)})

    def render(self, messages: list[Message]) -> tuple[list[int], str]:
        """Prompt ids with the generation prompt, and the text that the template opened."""
        try:
            text = self._tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False
            )
        except (jinja2.TemplateError, ValueError, TypeError, KeyError) as error:
            raise PromptError(self.model_id, str(error)) from error
        ids = self.encode(text)
        return ids, self.opened_prefix(ids)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with no special tokens added."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def opened_prefix(self, prompt_ids: Sequence[int]) -> str:
        """The tag that the prompt's end leaves open, with white space after it; or ''."""
        # Special tokens stay in: one that follows a user's words ends what those words opened.
        found = OPENED_TAG.search(self._text(prompt_ids[-TAIL_TOKENS:]))
        return found.group(0) if found else ""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids; special tokens are left out, tags stay."""
        return self._text([i for i in ids if i not in self._hidden_ids])

    def _text(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text


class StopWatcher:
    """Finds stop strings in a growing output without decoding all of it at each token."""

    def __init__(self, tokenizer: ChatTokenizer, stop: Sequence[str]):
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        # A visible token adds at least one byte; the margin is for characters cut at the left edge.
        self._tail = max((len(s.encode()) for s in self._stop), default=0) + 8

    def hit(self, output_ids: Sequence[int]) -> bool:
        """Whether the last token completed a stop string."""
        if not self._stop:
            return False
        tail = self._tokenizer.decode(output_ids[-self._tail :])
        return any(s in tail for s in self._stop)

    def cut(self, text: str) -> str:
        """The text before the first stop string."""
        ends = [at for s in self._stop if (at := text.find(s)) >= 0]
        return text[: min(ends)] if ends else text
