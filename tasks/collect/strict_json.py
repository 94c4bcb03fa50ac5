"""JSON of rows from outside: no duplicate keys, no NaN, no numbers or nesting beyond reason."""

import json
from typing import Any


class Invalid(ValueError):
    """The text is not JSON that can be stored and read again without change."""


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
    except ValueError as error:
        raise Invalid(str(error)) from None
