"""Strict JSON and deep equality by exact value.

Strict: no NaN or Infinity, no duplicate keys, no trailing commas or comments, no numbers
too long for Python, no nesting too deep to process. Numbers become `int` or `Decimal`,
so that 0.1 is one tenth and large integers keep their last digit; where values are only stored
again, `exact=False` gives floats. Older public rows hold Python literals: see `loads_literal`.
"""

import ast
import json
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

MAX_DEPTH = 200
MAX_DIGITS = 4000
LITERAL_LIMIT = 1_000_000
"""Characters; a longer Python literal is not worth the memory that its parser takes."""


class InvalidJson(ValueError):
    """The text is not JSON in the strict sense."""


class NotJson(InvalidJson):
    """The text is not JSON in any sense."""


def _refuse_constant(name: str) -> Any:
    raise InvalidJson(f"{name} is not JSON")


def _int(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise InvalidJson(f"a number of {len(text)} digits")
    return int(text)


def _decimal(text: str) -> Decimal:
    if len(text) > MAX_DIGITS:
        raise InvalidJson(f"a number of {len(text)} digits")
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise InvalidJson(f"not a number: {text[:40]}") from error
    if not value.is_finite():
        raise InvalidJson(f"an exponent too large: {text[:40]}")
    return value


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise InvalidJson(f"the number {text[:40]} is too large")
    return value


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in pairs:
        if key in out:
            raise InvalidJson(f"the key {key[:80]!r} stands twice in one object")
        out[key] = value
    return out


def _decoder(parse_float: Callable[[str], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_constant=_refuse_constant,
        parse_int=_int,
        parse_float=parse_float,
        object_pairs_hook=_unique,
        strict=True,
    )


_EXACT, _FLOATS = _decoder(_decimal), _decoder(_float)


def _too_deep(text: str) -> bool:
    """True when brackets outside strings nest deeper than MAX_DEPTH; linear, no recursion."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    in_string = skip = False
    for char in text:
        if skip:
            skip = False
        elif in_string:
            skip = char == "\\"
            in_string = char != '"'
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif char in "]}":
            depth -= 1
    return False


def loads(text: str, *, exact: bool = True) -> Any:
    """Parse strictly; raises InvalidJson and nothing else. Not `exact`: floats, no Decimals."""
    text = text.strip(" \t\r\n")
    if _too_deep(text):
        raise InvalidJson(f"nesting deeper than {MAX_DEPTH}")
    try:
        value, end = (_EXACT if exact else _FLOATS).raw_decode(text)
    except InvalidJson:
        raise
    except json.JSONDecodeError as error:
        raise NotJson(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise InvalidJson(str(error)) from error
    if end != len(text):
        raise NotJson(f"text after the JSON value at character {end}")
    return value


def loads_literal(text: str) -> Any:
    """The value of a Python literal, the form of older public rows; nothing is evaluated."""
    if len(text) > LITERAL_LIMIT:
        raise InvalidJson(f"a Python literal of more than {LITERAL_LIMIT} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                keys = [ast.dump(key) for key in node.keys if key is not None]
                if len(set(keys)) != len(keys):
                    raise InvalidJson("a key stands twice in one object")
        return ast.literal_eval(tree)
    except InvalidJson:
        raise
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise InvalidJson("neither JSON nor a Python literal") from None


def _exact(value: int | float | Decimal) -> tuple[int, int, int]:
    """(sign, digits, exponent) with trailing zeros removed: equal iff the values are equal."""
    number = value if isinstance(value, Decimal) else Decimal(repr(value))
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise InvalidJson(f"{value} is not a JSON number")
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    if not stripped:
        return 0, 0, 0
    return sign, int(stripped), exponent + len(text) - len(stripped)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def deep_equal(a: Any, b: Any) -> bool:
    """Equality of JSON values: a bool is no number, numbers compare by exact value."""
    stack = [(a, b)]
    while stack:
        x, y = stack.pop()
        if isinstance(x, dict):
            if not isinstance(y, dict) or x.keys() != y.keys():
                return False
            stack.extend((x[key], y[key]) for key in x)
        elif isinstance(x, list):
            if not isinstance(y, list) or len(x) != len(y):
                return False
            stack.extend(zip(x, y, strict=True))
        elif _is_number(x):
            if not _is_number(y) or _exact(x) != _exact(y):
                return False
        elif type(x) is not type(y) or x != y:
            return False
    return True
