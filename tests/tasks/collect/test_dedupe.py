"""What counts as the same prompt."""

import pytest

from tasks.collect.dedupe import prompt_key


def _key(text, role="user"):
    return prompt_key([{"role": role, "content": text}])


@pytest.mark.parametrize("text", ["what is  1+1?", " What is 1+1?\n", "WHAT\tIS １+１?"])
def test_width_case_and_space_do_not_count(text):
    assert _key(text) == _key("What is 1+1?")


def test_words_roles_and_turns_count():
    keys = {
        _key("a b"),
        _key("ab"),
        _key("a b", role="system"),
        prompt_key([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]),
    }
    assert len(keys) == 4
