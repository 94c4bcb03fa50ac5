"""Chat templates, opened tags, text."""

from collections.abc import Callable
from pathlib import Path

import pytest

from infra.inference.errors import PromptError
from infra.inference.prompts import ChatTokenizer, StopWatcher
from infra.inference.transformers_engine import TransformersEngine

TURN = "{% for m in messages %}{{ m['content'] }}<|end|>{% endfor %}"


@pytest.fixture(scope="module")
def words(tiny_model: Path) -> ChatTokenizer:
    return ChatTokenizer(tiny_model, "tiny")


@pytest.mark.parametrize(
    ("ending", "opened"),
    [
        ("<|assistant|>", ""),
        ("<|assistant|><think>", "<think>"),
        ("<|assistant|><think>\n\n", "<think>\n\n"),
        ("<|assistant|><think>\n\n</think>\n\n", ""),
        ("<|assistant|>\n<reasoning>\n", "<reasoning>\n"),
        ("<|assistant|>The answer, if x < 3 and y >", ""),
    ],
)
def test_prefix_that_the_template_opened(
    make_model: Callable[..., Path], ending: str, opened: str
) -> None:
    words = ChatTokenizer(make_model(template=TURN + "{{ '" + ending + "' }}"), "tiny")
    ids, found = words.render([{"role": "user", "content": "say <answer>"}])
    assert found == opened
    assert words.opened_prefix(ids) == opened


def test_round_trip_keeps_tags_and_drops_special_tokens(words: ChatTokenizer) -> None:
    text = "<think>né 漢字 🙂 a  b</think>\n<answer>4</answer>"
    assert words.decode(words.encode(text)) == text
    assert words.decode(words.encode("a<|end|>b")) == "ab"


def test_cut_off_utf8_becomes_valid_text(words: ChatTokenizer) -> None:
    whole = words.encode("ok 🙂")
    for cut in range(1, 4):
        text = words.decode(whole[:-cut])
        assert text.startswith("ok ") and "\ufffd" in text
        assert text.encode("utf-8").decode("utf-8") == text
    assert words.decode(whole[-2:]) == "\ufffd" * len(words.decode(whole[-2:]))
    assert words.decode(whole) == "ok 🙂"


def test_stop_strings_across_tokens_and_characters(words: ChatTokenizer) -> None:
    ids = words.encode("first 🙂🙂 then STOP and more")
    watcher = StopWatcher(words, ("STOP", "🙂🙂"))
    hits = [n for n in range(1, len(ids) + 1) if watcher.hit(ids[:n])]
    assert hits[0] == len(words.encode("first 🙂🙂"))
    assert watcher.cut("first 🙂🙂 then STOP") == "first "
    assert watcher.cut("nothing here") == "nothing here"
    assert not StopWatcher(words, ()).hit(ids)


def test_template_faults_are_prompt_errors(make_model: Callable[..., Path]) -> None:
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    words = ChatTokenizer(make_model(template=template), "tiny")
    with pytest.raises(PromptError, match="no system"):
        words.render([{"role": "system", "content": "x"}])


def test_engine_renders_like_its_tokenizer(
    engine: TransformersEngine, words: ChatTokenizer
) -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert engine.render(messages) == words.render(messages)
    assert words.decode(engine.render(messages)[0]) == "hi<think>\n"
