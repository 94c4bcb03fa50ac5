"""From trees to sympy expressions, through constructors only (no sympify, no parsing)."""

from fractions import Fraction
from typing import Any

import sympy

from verifiers.mathlib.errors import Unparsable
from verifiers.mathlib.exact import rational
from verifiers.mathlib.nodes import STRUCTURES, Node

_FUNCTIONS = {
    name: getattr(sympy, name)
    for name in (
        "sin cos tan cot sec csc asin acos atan acot sinh cosh tanh coth asinh acosh atanh "
        "factorial binomial floor ceiling Abs gcd lcm"
    ).split()
}
_SERIES = {"sum": sympy.Sum, "prod": sympy.Product}
_FUNCTIONS |= {"max": sympy.Max, "min": sympy.Min, "log": sympy.log}
_ANGLES = frozenset("sin cos tan cot sec csc".split())
_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo}


def number(value: Fraction) -> Any:
    """A sympy rational."""
    return sympy.Rational(value.numerator, value.denominator)


def expression(node: Node) -> Any:
    """The sympy expression of a tree without structures."""
    if node.kind in STRUCTURES:
        raise Unparsable(f"a {node.kind} where a value is expected")
    value = rational(node)
    if value is not None:
        return number(value)
    kind = node.kind
    if kind == "sym":
        return sympy.Symbol(node.args[0])
    if kind == "const":
        return _CONSTANTS[node.args[0]]
    if kind == "func":
        return _call(node)
    args = [expression(arg) for arg in node.args]
    if kind == "add":
        return sympy.Add(*args)
    if kind in ("mul", "apply"):
        return sympy.Mul(*args)
    if kind in ("div", "ratio"):
        if args[1] == 0:
            raise Unparsable("a division by zero")
        return args[0] / args[1]
    if kind == "pow":
        return sympy.Pow(*args)
    if kind == "neg":
        return -args[0]
    if kind == "deg":
        return args[0]
    if kind == "pct":
        return args[0] / 100
    raise Unparsable(f"a {kind} where a value is expected")


def _call(node: Node) -> Any:
    name, *rest = node.args
    if name in _ANGLES:
        rest = [_radians(arg) for arg in rest]
    args = [expression(arg) for arg in rest]
    if name in _SERIES:
        index, low, high, term = args
        if any(index.name in symbol.name.partition("_")[2] for symbol in term.free_symbols):
            return sympy.Function(name)(*args)  # terms like a_k, which have no value
        return _SERIES[name](term, (index, low, high)).doit()
    function = _FUNCTIONS.get(name)
    if function is None:
        raise Unparsable(f"function {name}")
    try:
        return function(*args)
    except (TypeError, ValueError) as error:
        raise Unparsable(f"{name} does not take these arguments") from error


def _radians(node: Node) -> Node:
    if node.kind == "deg":
        half_turn = Node("div", (Node("const", ("pi",)), Node("num", (Fraction(180),))))
        return Node("mul", (node.args[0], half_turn))
    return node
