"""The tree of a parsed answer.

`Node(kind, args)`: num (a Fraction), sym, const, add, mul, div, pow, neg, func (name, *args),
deg, pct, apply (f, x: a product that was written like a function), ratio (a, b: written with a
colon); and the structures set, tuple, list, interval (low, high, left open, right open),
union, matrix (rows), rel (first, op, second, …), text, field, pm (a, b).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any


@dataclass(frozen=True)
class Node:
    """One node; `args` are nodes, numbers or strings as the kind says."""

    kind: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.args))})"


STRUCTURES = frozenset(
    ("set", "tuple", "list", "interval", "union", "matrix", "rel", "text", "field")
)
INFINITY = Node("const", ("oo",))
MINUS_INFINITY = Node("neg", (INFINITY,))


def num(value: int | str | Fraction) -> Node:
    """A rational number; a decimal text stands for its exact value."""
    return Node("num", (Fraction(value),))


def has_choice(node: Node) -> bool:
    """True when the tree holds a plus-minus sign."""
    pending = [node]
    while pending:
        item = pending.pop()
        if item.kind == "pm":
            return True
        pending += [arg for arg in item.args if isinstance(arg, Node)]
    return False


def choose(node: Node, upper: bool) -> Node:
    """The tree with all plus-minus signs read one way."""
    if node.kind == "pm":
        sign, value = node.args
        chosen = choose(value, upper)
        return chosen if (sign == "pm") == upper else Node("neg", (chosen,))
    args = tuple(choose(arg, upper) if isinstance(arg, Node) else arg for arg in node.args)
    return Node(node.kind, args)
