"""A recursive-descent parser from tokens to the tree of nodes.

It accepts a text only as a whole.
"""

import math
import re
from fractions import Fraction

from verifiers.mathlib.errors import Unparsable
from verifiers.mathlib.expressions import Expressions
from verifiers.mathlib.nodes import Node, choose, has_choice, num
from verifiers.mathlib.tokens import tokenize

_RATIO = re.compile(r"\s*\d{1,50}(?:\s*:\s*\d{1,50}){1,20}\s*")
_RELATIONS = frozenset(("=", "<", ">", "<=", ">=", "!=", "in"))


class Parser(Expressions):
    """One text; `answer` is the entry."""

    def answer(self) -> Node:
        """The whole text."""
        node = self._items("list", "end")
        self._take("end")
        return node

    def _items(self, kind: str, *ends: str) -> Node:
        """Items apart by commas or words; a single one is no list."""
        items = [self._relation()]
        while self._accept(",", ";", "sep"):
            self._accept("sep")  # "a, and b"
            if self._next.kind in ends:
                break
            items.append(self._relation())
        return items[0] if len(items) == 1 and kind == "list" else Node(kind, tuple(items))

    def _relation(self) -> Node:
        parts: list[Node | str] = [self._union()]
        while self._next.kind in _RELATIONS:
            parts.append(self._take().kind)
            parts.append(self._union())
        return Node("rel", tuple(parts)) if len(parts) > 1 else self._only(parts)

    @staticmethod
    def _only(parts: list[Node | str]) -> Node:
        node = parts[0]
        assert isinstance(node, Node)
        return node

    def _union(self) -> Node:
        parts = [self._sum()]
        while self._accept("cup"):
            parts.append(self._sum())
        return Node("union", tuple(parts)) if len(parts) > 1 else parts[0]

    def _bracket(self) -> Node:
        """`(…)` and `[…]`: a group, a tuple or an interval."""
        left = self._take("(", "[").kind
        bars, self._bars = self._bars, 0
        items = self._items("tuple", ")", "]").args
        right = self._take(")", "]").kind
        self._bars = bars
        if len(items) == 2 and (left, right) != ("(", ")"):
            return Node("interval", (*items, left == "(", right == ")"))
        if (left, right) not in (("(", ")"), ("[", "]")):
            raise Unparsable(f"{left} closed by {right}")
        if len(items) == 1:
            return items[0]  # type: ignore[no-any-return]
        return Node("tuple", items)

    def _set(self) -> Node:
        self._take("lset")
        if self._accept("rset"):
            return Node("set", ())
        items = self._items("set", "rset")
        self._take("rset")
        return items

    def _matrix(self) -> Node:
        self._take("env")
        rows: list[list[Node]] = [[]]
        while not self._accept("endenv"):
            if self._accept("row"):
                rows.append([])
            elif not self._accept("&"):
                rows[-1].append(self._sum())
        rows = [row for row in rows if row]
        if not rows or len({len(row) for row in rows}) != 1:
            raise Unparsable("a matrix whose rows differ in length")
        return Node("matrix", tuple(Node("tuple", tuple(row)) for row in rows))


def _proportion(parts: list[int]) -> Node:
    """`7:32` is 7/32; longer proportions are tuples in lowest terms."""
    divisor = 1 if 0 in parts else math.gcd(*parts)  # 12:00 is no proportion
    if len(parts) == 2 and parts[1] != 0:
        return num(Fraction(parts[0], parts[1]))
    return Node("tuple", tuple(num(part // divisor) for part in parts))


def parse(text: str) -> Node:
    """The tree of a text; Unparsable unless all of it is understood."""
    if ratio := _RATIO.fullmatch(text):
        return _proportion([int(part) for part in ratio[0].split(":")])
    try:
        node = Parser(tokenize(text)).answer()
    except RecursionError as error:
        raise Unparsable("nested too deep") from error
    if has_choice(node):
        return Node("list", (choose(node, True), choose(node, False)))
    return node
