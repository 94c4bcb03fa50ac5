"""Whether two parsed answers are mathematically equal.

Sets ignore order and repetition, tuples do not ignore order, interval ends count. A bare
list (`3, 5` or "3 or 5") is the set of its items, and stands for a tuple of the same order.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

from verifiers.mathlib import matrices, relations
from verifiers.mathlib.errors import Unparsable
from verifiers.mathlib.exact import rational
from verifiers.mathlib.nodes import INFINITY, MINUS_INFINITY, STRUCTURES, Node

_REGIONS = frozenset(("interval", "union", "tuple"))


def equal(truth: Node, answer: Node) -> bool:
    """Equality of the truth and the answer."""
    if truth == answer:
        return True
    truth, answer = _value_of(truth, answer), _value_of(answer, truth)
    if truth.kind in STRUCTURES or answer.kind in STRUCTURES:
        return _structures(truth, answer)
    return _values(truth, answer)


def _value_of(node: Node, other: Node) -> Node:
    """`x = 7` stands for 7 where the other side is no relation; `x in S` for S."""
    if node.kind == "rel" and other.kind != "rel":
        value = relations.value(node, equal)
        return node if value is None else _value_of(value, other)
    if node.kind in ("set", "list") and len(node.args) == 1 and other.kind not in ("set", "list"):
        return node.args[0]  # type: ignore[no-any-return]
    return matrices.settle(node)


def _values(truth: Node, answer: Node) -> bool:
    a, b = rational(truth), rational(answer)
    if a is not None and b is not None:
        return a == b or _percent(truth, answer, a, b)
    if truth.kind == answer.kind == "sym":
        return False  # two names that differ
    from verifiers.mathlib.build import expression
    from verifiers.mathlib.equality import expressions_equal

    return expressions_equal(expression(truth), expression(answer))


def _percent(truth: Node, answer: Node, a: Fraction, b: Fraction) -> bool:
    """A percent sign on one side only may be missing on the other."""
    if (truth.kind == "pct") == (answer.kind == "pct"):
        return False
    return a * 100 == b if truth.kind == "pct" else b * 100 == a


def _structures(truth: Node, answer: Node) -> bool:
    truth, answer = _all_reals(truth, answer), _all_reals(answer, truth)
    a, b = truth.kind, answer.kind
    if "text" in (a, b) or "field" in (a, b):
        return _texts(truth, answer)
    if a == b == "rel":
        return relations.equal(truth, answer, equal)
    if a == "rel" or b == "rel":
        relation, other = (truth, answer) if a == "rel" else (answer, truth)
        region = relations.region(relation) if other.kind in _REGIONS else None
        return region is not None and _same_region(region, other)
    if {a, b} <= {"set", "list"}:
        return _same_set(truth.args, answer.args)
    if {a, b} <= {"tuple", "list"}:
        return _same_sequence(truth.args, answer.args, equal)
    if {a, b} <= {*_REGIONS, "set"}:
        return _same_region(truth, answer)
    if a == b == "matrix":
        return _same_sequence(truth.args, answer.args, equal)
    return False


def _all_reals(node: Node, other: Node) -> Node:
    """R as an interval, where the other side is one."""
    if node == Node("field", ("R",)) and other.kind in _REGIONS:
        return Node("interval", (MINUS_INFINITY, INFINITY, True, True))
    return node


def _texts(truth: Node, answer: Node) -> bool:
    if "field" in (truth.kind, answer.kind):
        return truth == answer
    words = _words(truth)
    return words is not None and words == _words(answer)


def _words(node: Node) -> list[str] | None:
    """A text, or short letters that the reader took for a product of symbols ("odd")."""
    if node.kind == "mul" and all(arg.kind in ("sym", "const") for arg in node.args):
        return ["".join(str(arg.args[0]) for arg in node.args).casefold()]
    return str(node.args[0]).casefold().split() if node.kind == "text" else None


def _same_sequence(
    a: Sequence[Node], b: Sequence[Node], same: Callable[[Node, Node], bool]
) -> bool:
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def _same_set(a: Sequence[Node], b: Sequence[Node]) -> bool:
    if max(len(a), len(b)) > 200:
        return _rational_set(a) == _rational_set(b) is not None
    return all(any(equal(x, y) for y in b) for x in a) and all(
        any(equal(x, y) for x in a) for y in b
    )


def _rational_set(items: Sequence[Node]) -> frozenset[Fraction] | None:
    values = {rational(item) for item in items}
    return None if None in values else frozenset(v for v in values if v is not None)


def _as_interval(node: Node) -> Node:
    """A pair in round brackets is an open interval where an interval is expected."""
    if node.kind == "tuple" and len(node.args) == 2:
        return Node("interval", (*node.args, True, True))
    return node


def _pieces(node: Node) -> list[Node]:
    if node.kind != "union":
        return [_as_interval(node)]
    return [piece for part in node.args for piece in _pieces(part)]


def _same_piece(a: Node, b: Node) -> bool:
    if a.kind == b.kind == "interval":
        return bool(a.args[2:] == b.args[2:]) and all(
            equal(x, y) for x, y in zip(a.args[:2], b.args[:2], strict=True)
        )
    return a.kind == b.kind and equal(a, b)


def _same_region(truth: Node, answer: Node) -> bool:
    a, b = _pieces(truth), _pieces(answer)
    if len(a) == len(b) and all(any(_same_piece(x, y) for y in b) for x in a):
        return all(any(_same_piece(x, y) for x in a) for y in b)
    return _merged(a, b)


def _merged(a: list[Node], b: list[Node]) -> bool:
    """Compare as sets of real numbers, so that touching pieces may be cut differently."""
    import sympy

    from verifiers.mathlib.build import expression

    def region(pieces: list[Node]) -> object:
        parts = []
        for piece in pieces:
            if piece.kind == "interval":
                low, high = expression(piece.args[0]), expression(piece.args[1])
                parts.append(sympy.Interval(low, high, *piece.args[2:]))
            elif piece.kind == "set":
                parts.append(sympy.FiniteSet(*(expression(item) for item in piece.args)))
            else:
                raise Unparsable(f"a {piece.kind} in a union")
        return sympy.Union(*parts)

    try:
        return bool(region(a) == region(b))
    except (Unparsable, ValueError, TypeError):
        return False
