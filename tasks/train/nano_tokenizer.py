"""The tokenizer of the nano models: bytes, a few marks, and the fixed phrases of the task prompts.

Invariants: every UTF-8 text encodes and decodes without loss (256 byte tokens, no normaliser, no
clean-up); think tags are ordinary added tokens, so they survive `skip_special_tokens=True`; a
phrase is one token, which makes the long fixed templates of reasoning-gym short for the model and
leaves what varies (words, digits) in single bytes.
"""

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
THINK, THINK_END = "<think>", "</think>"
CONTEXT = 2048

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|><think>' }}{% endif %}"
)


def shared_phrases(texts: Sequence[str], shortest: int = 6) -> list[str]:
    """Spans that stand in every one of the texts, in order: the fixed parts of their template."""
    spans = [texts[0]]
    for text in texts[1:]:
        spans = [
            span[block.a : block.a + block.size]
            for span in spans
            for block in SequenceMatcher(None, span, text, autojunk=False).get_matching_blocks()
            if block.size >= shortest
        ]
    return spans


def build_tokenizer(phrases: Iterable[str]) -> Any:
    """A fast tokenizer: ids 0-255 are bytes, then the marks, then the phrases, sorted."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(mark, normalized=False) for mark in (PAD, END, *ROLES)])
    kept = sorted({phrase for phrase in phrases if phrase.isascii()})
    core.add_tokens([AddedToken(text, normalized=False) for text in (THINK, THINK_END, *kept)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
