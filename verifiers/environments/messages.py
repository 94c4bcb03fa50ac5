"""A model's text as messages, and a whole conversation as text.

A completion of one turn is the assistant's text; tool calls stand in it as most open models write
them, `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. A completion of several turns is
a JSON list of messages; only those of the assistant count, the environment says its own again.
"""

import json
from typing import Any

from verifiers import extract, strict_json

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MAX_CALLS = 64

Message = dict[str, Any]


def assistant_message(text: str) -> Message:
    """The message of one completion: without its thinking, with the tool calls that it makes.

    A call that is no JSON object with a name stays text.
    """
    content = extract.answer_part(text) or ""
    calls: list[Message] = []
    kept: list[str] = []
    rest = content
    while len(calls) < MAX_CALLS:
        before, opened, after = rest.partition(OPEN)
        inside, closed, behind = after.partition(CLOSE)
        if not (opened and closed):
            break
        call = _call(inside)
        if call is None:
            kept.append(before + opened + inside + closed)
        else:
            kept.append(before)
            calls.append({"id": f"call_{len(calls)}", **call})
        rest = behind
    message: Message = {"role": "assistant", "content": "".join([*kept, rest]).strip()}
    if calls:
        message["tool_calls"] = calls
    return message


def _call(text: str) -> dict[str, str] | None:
    try:
        strict_json.loads(text)  # no NaN, no endless nesting, no key twice
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    return {"name": value["name"], "arguments": arguments}


def turns_of(completion: str) -> list[Message]:
    """The assistant's messages of a completion, in order: one for plain text."""
    try:
        strict_json.loads(completion)
        value = json.loads(completion)
    except ValueError:
        value = None
    if not isinstance(value, list) or not value or not all(map(_is_message, value)):
        return [assistant_message(completion)]
    return [
        {**assistant_message(item["content"]), **_given_calls(item)}
        for item in value
        if item["role"] == "assistant"
    ]


def _is_message(item: object) -> bool:
    return (
        isinstance(item, dict)
        and isinstance(item.get("role"), str)
        and isinstance(item.get("content"), str)
    )


def _given_calls(item: Message) -> Message:
    """Tool calls that are written as such, in the form of this library or of OpenAI."""
    calls = []
    given = item.get("tool_calls")
    for number, call in enumerate(given[:MAX_CALLS] if isinstance(given, list) else []):
        inner = call.get("function", call) if isinstance(call, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            arguments = inner.get("arguments", "{}")
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            name = str(call.get("id") or f"call_{number}")
            calls.append({"id": name, "name": inner["name"], "arguments": text})
    return {"tool_calls": calls} if calls else {}
