"""Safe stand-ins for what reasoning-gym's scorers evaluate.

Some scorers call `eval` on the answer or on the row, or sympy's `parse_expr`, which
evaluates too. Their modules get replacements here that accept literals, integer
arithmetic and whitelisted formulas, and refuse everything else with ValueError, which
those scorers take for a wrong answer.
"""

import ast
import importlib
import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_LITERAL_MODULES = (
    "algorithmic.binary_matrix",
    "algorithmic.number_sorting",
    "algorithmic.spiral_matrix",
    "algorithmic.string_insertion",
    "games.n_queens",
)
_MAX_TEXT = 5000
_FORMULA = re.compile(r"[0-9A-Za-z_+\-*/^().,\s]*")
_NAMES = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_FUNCTIONS = frozenset(
    "sin cos tan cot sec csc asin acos atan sinh cosh tanh asinh acosh atanh "
    "exp log ln sqrt Abs pi E I oo Rational".split()
)
_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


def literal(text: str) -> Any:
    """`eval` for texts that are Python literals."""
    if len(text) > _MAX_TEXT:
        raise ValueError(f"a text of {len(text)} characters is not evaluated")
    return ast.literal_eval(text)


def integer_arithmetic(text: str) -> int:
    """`eval` for integer expressions with + - * // & | ^ << >>."""
    if len(text) > _MAX_TEXT:
        raise ValueError(f"a text of {len(text)} characters is not evaluated")

    def value(node: ast.AST) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert):
            inner = value(node.operand)
            return -inner if isinstance(node.op, ast.USub) else ~inner
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, right = value(node.left), value(node.right)
            if isinstance(node.op, ast.LShift) and right > 100_000:
                raise ValueError("shift too large")
            return _OPERATORS[type(node.op)](left, right)
        raise ValueError(f"not integer arithmetic: {type(node).__name__}")

    return value(ast.parse(text.strip(), mode="eval").body)


def check_formula(text: str) -> None:
    """Refuse a text that is more than numbers, one-letter names and known functions."""
    if len(text) > _MAX_TEXT or not _FORMULA.fullmatch(text):
        raise ValueError("not a plain formula")
    if re.search(r"\.\s*[A-Za-z_]|[A-Za-z_)]\s*\.", text):
        raise ValueError("attributes are not allowed in a formula")
    for name in _NAMES.findall(text):
        if len(name) > 1 and name not in _FUNCTIONS:
            raise ValueError(f"name {name:.20} is not allowed in a formula")
    for exponent in re.findall(r"(?:\*\*|\^)\s*\(?\s*-?(\d+)", text):
        if int(exponent) > 1000:
            raise ValueError("exponent too large")


def formula(text: str, *args: Any, **kwargs: Any) -> Any:
    """sympy's parse_expr behind `check_formula`."""
    from sympy.parsing.sympy_parser import parse_expr

    check_formula(text)
    return parse_expr(text, *args, **kwargs)


class _GuardedSympy:
    """The sympy module with `parse_expr` guarded."""

    parse_expr = staticmethod(formula)

    def __getattr__(self, name: str) -> Any:
        import sympy

        return getattr(sympy, name)


def invalid_puzzle(name: str, text: str, entry: dict[str, Any]) -> bool:
    """True for an answer to a 24 puzzle with other numbers: the library does not look."""
    if name != "puzzle24":
        return False
    numbers = entry["metadata"].get("numbers")
    used = sorted(int(number) for number in re.findall(r"\b\d+\b", text))
    return isinstance(numbers, list) and used != sorted(numbers)


@lru_cache(maxsize=1)
def guard_library() -> None:
    """Import reasoning-gym and put the replacements in place."""

    def module(name: str) -> Any:
        return importlib.import_module(f"reasoning_gym.{name}")

    for name in _LITERAL_MODULES:
        module(name).eval = literal
    module("arithmetic.bitwise_arithmetic").eval = integer_arithmetic
    for name in ("games.countdown", "games.puzzle24"):
        module(name).parse_expr = formula
    for name in ("algebra.intermediate_integration", "algebra.simple_integration"):
        module(name).sympy = _GuardedSympy()
    module("algebra.polynomial_multiplication").sp = _GuardedSympy()
