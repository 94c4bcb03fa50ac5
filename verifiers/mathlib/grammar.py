"""A recursive-descent parser from tokens to the tree of nodes.

It accepts a text only as a whole.
"""

import math
import re
from fractions import Fraction

from verifiers.mathlib.errors import Unparsable
from verifiers.mathlib.expressions import Expressions
from verifiers.mathlib.nodes import Node, choose, has_choice, num
from verifiers.mathlib.tokens import Token, tokenize

_RATIO = re.compile(r"\s*\d{1,50}(?:\s*:\s*\d{1,50}){1,20}\s*")
_OPENING = frozenset(("(", "[", "{", "lset"))
_CLOSING = frozenset((")", "]", "}", "rset"))
_RELATIONS = frozenset(("=", "<", ">", "<=", ">=", "!=", "in"))


class Parser(Expressions):
    """One text; `answer` is the entry."""

    def answer(self) -> Node:
        """The whole text. Semicolons part groups: `p=5, q=2; p=7, q=2` lists two pairs."""
        if not {",", ";"} <= self._top_level():
            node = self._items("list", "end")
        else:
            groups = [self._items("list", ";", "end")]
            while self._accept(";"):
                groups.append(self._items("list", ";", "end"))
            node = Node("list", tuple(groups))
        self._take("end")
        return node

    def _top_level(self) -> set[str]:
        """The kinds of token outside of all brackets."""
        depth, kinds = 0, set()
        for token in self._tokens:
            depth += (token.kind in _OPENING) - (token.kind in _CLOSING)
            if depth == 0:
                kinds.add(token.kind)
        return kinds

    def _items(self, kind: str, *ends: str) -> Node:
        """Items apart by commas or words; a single one is no list."""
        items = [self._relation()]
        while self._next.kind not in ends and self._accept(",", ";", "sep"):
            self._accept("sep")  # "a, and b"
            if self._next.kind in ends:
                break
            items.append(self._relation())
        return items[0] if len(items) == 1 and kind == "list" else Node(kind, tuple(items))

    def _relation(self) -> Node:
        self._accept("approx")
        parts: list[Node | str] = [self._ratio()]
        while self._next.kind in _RELATIONS:
            parts.append(self._take().kind)
            parts.append(self._ratio())
        if self._next.kind == "approx":
            self._approximation(parts)
        return Node("rel", tuple(parts)) if len(parts) > 1 else self._only(parts)

    def _approximation(self, parts: list[Node | str]) -> None:
        """What follows a value behind `\\approx` says the same less exactly; a name gets it."""
        named = len(parts) == 1 and self._only(parts).kind in ("sym", "apply")
        while self._accept("approx"):
            value = self._ratio()
            if named:
                parts += ["=", value]
                named = False

    def _ratio(self) -> Node:
        left = self._union()
        if self._sets or not self._accept(":"):
            return left
        return Node("ratio", (left, self._union()))

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
        self._sets += 1
        items = self._condition() or self._items("set", "rset")
        self._sets -= 1
        self._take("rset")
        return items

    def _condition(self) -> Node | None:
        r"""The condition of `\{x : x > 2\}`, which stands for the real x that fulfil it."""
        bar = 1
        if self._peek(1).kind == "in" and self._peek(2) == Token("field", "R"):
            bar = 3
        if self._next.kind != "sym" or self._peek(bar).kind not in ("|", ":"):
            return None
        self._at += bar + 1
        condition = self._relation()
        if condition.kind != "rel":
            raise Unparsable("a set without a condition")
        return condition

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
