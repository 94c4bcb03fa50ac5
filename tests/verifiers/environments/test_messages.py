"""Completions as messages of the assistant."""

import json

from verifiers.environments.messages import assistant_message, turns_of

CALL = '<tool_call>\n{"name": "price", "arguments": {"item": "pear"}}\n</tool_call>'


def test_text_without_thinking():
    assert assistant_message("<think>a</think> b ") == {"role": "assistant", "content": "b"}


def test_tool_calls_are_taken_out_of_the_text():
    message = assistant_message(f"Let me see.\n{CALL}\n{CALL}")
    assert message["content"] == "Let me see."
    assert [call["id"] for call in message["tool_calls"]] == ["call_0", "call_1"]
    assert json.loads(message["tool_calls"][1]["arguments"]) == {"item": "pear"}
    assert message["tool_calls"][0]["name"] == "price"


def test_what_is_no_call_stays_text():
    for text in (
        "<tool_call>price(pear)</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": 3}</tool_call>',
        '<tool_call>{"name": "a", "name": "b"}</tool_call>',
        f"<tool_call>{'[' * 100_000}</tool_call>",
        "<tool_call>",
        "</tool_call><tool_call>",
    ):
        assert assistant_message(text) == {"role": "assistant", "content": text}


def test_calls_in_the_thinking_do_not_count():
    assert "tool_calls" not in assistant_message(f"<think>{CALL}</think>done")


def test_a_conversation_gives_the_turns_of_the_assistant():
    given = {"id": "x", "function": {"name": "price", "arguments": '{"item": "plum"}'}}
    talk = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": CALL},
        {"role": "tool", "content": "100"},
        {"role": "assistant", "content": "", "tool_calls": [given]},
        {"role": "assistant", "content": "100"},
    ]
    first, second, third = turns_of(json.dumps(talk))
    assert first["tool_calls"][0]["name"] == "price" and first["content"] == ""
    assert second["tool_calls"] == [{"id": "x", "name": "price", "arguments": '{"item": "plum"}'}]
    assert third == {"role": "assistant", "content": "100"}


def test_other_json_is_plain_text():
    for text in ("[]", "[1]", '{"role": "assistant"}', '[{"role": "user"}]', "[NaN]"):
        assert turns_of(text) == [{"role": "assistant", "content": text}]
