"""The nano tokenizer: lossless on any text, think tags kept, template opens the thought."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tasks.train.nano_tokenizer import build_tokenizer, shared_phrases

NANO = Path(__file__).parents[3] / "infra" / "models" / "nano"
TOKENIZER = AutoTokenizer.from_pretrained(NANO / "s")
PIECES = st.sampled_from(
    ["<answer>", "</answer>", "<think>", "</think>", ".0', '", "\nGive only the final", "é", " "]
)
TEXT = st.lists(st.one_of(PIECES, st.text(max_size=20)), max_size=8).map("".join)
MARKS = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")


def round_trip(text: str) -> str:
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    return TOKENIZER.decode(ids, skip_special_tokens=True)


@settings(max_examples=300, deadline=None)
@given(TEXT)
def test_any_text_survives(text: str) -> None:
    assert round_trip(text) == text


@pytest.mark.parametrize(
    "text", [" a  b ", "x 's n't , !", "\x00\r\n\t", "日本 😀 ﬁ", "a\u0301", ""]
)
def test_awkward_texts_survive(text: str) -> None:
    assert round_trip(text) == text


def test_every_byte_has_a_token_of_its_own() -> None:
    text = bytes(range(128)).decode() + "".join(chr(code) for code in range(128, 0x800))
    used = set(TOKENIZER.encode(text, add_special_tokens=False))
    assert len([token for token in used if token < 256]) == 128 + 64 + 30


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=30))
def test_template_opens_the_thought(content: str) -> None:
    prompt = TOKENIZER.apply_chat_template(
        [{"role": "system", "content": "s"}, {"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=False,
    )
    assert prompt == f"<|system|>s<|end|><|user|>{content}<|end|><|assistant|><think>"


def test_marks_are_single_tokens_and_only_they_are_hidden() -> None:
    ids = TOKENIZER.encode("".join(MARKS) + "<think></think>", add_special_tokens=False)
    assert len(ids) == len(MARKS) + 2
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == "<think></think>"
    assert TOKENIZER.eos_token == "<|end|>" and TOKENIZER.pad_token == "<|pad|>"


@pytest.mark.parametrize("size", ["m", "l"])
def test_sizes_share_the_tokenizer(size: str) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (NANO / size / name).read_bytes() == (NANO / "s" / name).read_bytes()


def test_shared_phrases_are_the_fixed_parts() -> None:
    texts = [f"Sort {numbers} upwards, please." for numbers in ("1, 2", "31, 4", "5, 96")]
    assert shared_phrases(texts) == [" upwards, please."]
    assert shared_phrases(texts, shortest=5) == ["Sort ", " upwards, please."]


def test_built_tokenizer_leaves_out_phrases_that_are_not_ascii() -> None:
    built = build_tokenizer(["naïve phrase", "plain phrase"])
    assert len(built.encode("plain phrase", add_special_tokens=False)) == 1
    assert len(built.encode("naïve phrase", add_special_tokens=False)) == 13
