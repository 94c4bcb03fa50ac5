"""JSON of rows from outside: no duplicate keys, no NaN, no numbers or nesting beyond reason.

Older public rows hold Python literals where newer ones hold JSON; those are read as data too.
"""

import ast
import json
from typing import Any

LITERAL_LIMIT = 1_000_000
"""Characters; a longer Python literal is not worth the memory that its parser takes."""


class Invalid(ValueError):
    """The text does not hold a value that can be stored and read again without change."""


class NotJson(Invalid):
    """The text is not JSON at all."""


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Invalid(f"the key {key[:80]!r} stands twice in one object")
            seen.add(key)
    return result


def _no_constant(name: str) -> Any:
    raise Invalid(f"{name} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise Invalid(f"the number {text[:40]} is too large")
    return value


def loads(text: str) -> Any:
    """The value, or `Invalid` with the reason."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_no_duplicates,
            parse_constant=_no_constant,
            parse_float=_float,
        )
    except Invalid:
        raise
    except RecursionError:
        raise Invalid("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise NotJson(str(error)) from None
    except ValueError as error:
        raise Invalid(str(error)) from None


def loads_literal(text: str) -> Any:
    """The value of a Python literal; nothing is evaluated."""
    if len(text) > LITERAL_LIMIT:
        raise Invalid(f"neither JSON nor a Python literal of up to {LITERAL_LIMIT} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                keys = [ast.dump(key) for key in node.keys if key is not None]
                if len(set(keys)) != len(keys):
                    raise Invalid("a key stands twice in one object")
        return ast.literal_eval(tree)
    except Invalid:
        raise
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise Invalid("neither JSON nor a Python literal") from None
