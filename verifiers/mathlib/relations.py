"""Equations, inequalities and memberships: their values, their solutions, their equality.

A relation that only names its value (`x = 7`, `AB = 7`, `f(x) = x^2`, `x = 3 + 4 = 7`)
stands for it. `Same` is the comparison of compare.py, which handles what is inside.
"""

from collections.abc import Callable, Sequence

from verifiers.mathlib.exact import rational
from verifiers.mathlib.nodes import INFINITY, MINUS_INFINITY, STRUCTURES, Node

Same = Callable[[Node, Node], bool]
Link = tuple[Node, str, Node]
"""Left side, sign, right side."""

_FLIP = {">": "<", ">=": "<="}
_MINUS_ONE = Node("neg", (Node("num", (1,)),))


def value(node: Node, same: Same) -> Node | None:
    """What a relation names: the right side of `x in S` or of equations; None if it names none."""
    left: Node
    rest: list[Node]
    left, *rest = node.args[::2]
    if node.args[1] == "in":
        return rest[0] if len(rest) == 1 else None
    if set(node.args[1::2]) != {"="}:
        return None
    named = _is_name(left)
    values = rest if named else [left, *rest]
    if len(values) > 1:
        if not named and any(rational(side) is None for side in values):
            return None  # an equation to be solved
        if not all(same(side, values[-1]) for side in values[:-1]):
            return None
    return values[-1]


def _is_name(node: Node) -> bool:
    """A symbol, f(x), the inverse of f, a segment AB, |AB|, a ratio, or a tuple of symbols."""
    match node.kind:
        case "sym" | "apply":
            return True
        case "ratio":
            return all(_is_name(arg) for arg in node.args)
        case "div":
            return all(arg.kind == "mul" and _is_name(arg) for arg in node.args)
        case "func":
            return bool(node.args[0] == "Abs" and node.args[1].kind == "mul") and _is_name(
                node.args[1]
            )
        case "mul":
            first, *others = node.args
            if first.kind == "pow" and first.args[1] == _MINUS_ONE:
                return first.args[0].kind == "sym" and [arg.kind for arg in others] == ["sym"]
            return all(arg.kind == "sym" and arg.args[0][0].isupper() for arg in node.args)
        case "tuple":
            return all(arg.kind == "sym" for arg in node.args)
    return False


def equal(truth: Node, answer: Node, same: Same) -> bool:
    """Equality of two relations: each link of one is a link of the other."""
    if (truth.args[1] == "in") != (answer.args[1] == "in"):
        named = [value(side, same) if side.args[1] == "in" else side for side in (truth, answer)]
        return None not in named and same(*named)  # type: ignore[arg-type]
    mine, theirs = _links(truth), _links(answer)
    return (
        len(mine) == len(theirs)
        and all(any(_same_link(x, y, same) for y in theirs) for x in mine)
        and all(any(_same_link(x, y, same) for x in mine) for y in theirs)
    )


def _links(node: Node) -> list[Link]:
    """The relations of a chain, each turned so that it reads =, !=, in, < or <=."""
    links = []
    for i in range(0, len(node.args) - 2, 2):
        left, sign, right = node.args[i : i + 3]
        if sign in _FLIP:
            left, sign, right = right, _FLIP[sign], left
        links.append((left, sign, right))
    return links


def _same_link(a: Link, b: Link, same: Same) -> bool:
    if a[1] != b[1]:
        return False
    if a[1] == "=":
        b = _same_variable(a, b)
    if same(a[0], b[0]) and same(a[2], b[2]):
        return True
    if a[1] == "in" or any(side.kind in STRUCTURES for side in (a[0], a[2], b[0], b[2])):
        return False
    from verifiers.mathlib.build import expression
    from verifiers.mathlib.equality import proportional

    left = expression(a[0]) - expression(a[2])
    right = expression(b[0]) - expression(b[2])
    return proportional(left, right, positive=a[1] in ("<", "<="))


def _same_variable(a: Link, b: Link) -> Link:
    """`b` in the variable of `a`, when both define the same function: f(t) = … and f(x) = …."""
    mine, theirs = a[0], b[0]
    if mine.kind == theirs.kind == "apply" and mine.args[0] == theirs.args[0]:
        new, old = mine.args[1], theirs.args[1]
        if new.kind == old.kind == "sym" and not _holds(b[2], new):
            return mine, "=", _renamed(b[2], old, new)
    return b


def _holds(node: Node, name: Node) -> bool:
    return node == name or any(_holds(arg, name) for arg in node.args if isinstance(arg, Node))


def _renamed(node: Node, name: Node, new: Node) -> Node:
    if node == name:
        return new
    args = tuple(_renamed(arg, name, new) if isinstance(arg, Node) else arg for arg in node.args)
    return Node(node.kind, args)


def region(node: Node) -> Node | None:
    """The region of `a < x <= b`, `x > a`, `a <= |x| < b` or `0 < f(x) < 1`; None of others."""
    bounds: list[Node] = [MINUS_INFINITY, INFINITY]
    opened = [True, True]
    names = set()
    for left, sign, right in _links(node):
        if sign not in ("<", "<="):
            return None
        if _is_unknown(right) and left.kind not in STRUCTURES:
            names.add(right)
            bounds[0], opened[0] = left, sign == "<"
        elif _is_unknown(left) and right.kind not in STRUCTURES:
            names.add(left)
            bounds[1], opened[1] = right, sign == "<"
        else:
            return None
    if len(names) != 1:
        return None
    found = Node("interval", (*bounds, *opened))
    return _of_absolute(found) if names.pop().kind == "func" else found


def _is_unknown(node: Node) -> bool:
    if node.kind == "func":
        return bool(node.args[0] == "Abs" and node.args[1].kind == "sym")
    return node.kind in ("sym", "apply")


def _of_absolute(found: Node) -> Node | None:
    """The region of a real x from that of |x|."""
    low, high, low_open, high_open = found.args
    if low == MINUS_INFINITY:
        return Node("interval", (Node("neg", (high,)), high, high_open, high_open))
    least = rational(low)
    if least is None or least < 0:
        return None
    mirrored: Sequence[object] = (Node("neg", (high,)), Node("neg", (low,)), high_open, low_open)
    return Node("union", (Node("interval", tuple(mirrored)), found))
