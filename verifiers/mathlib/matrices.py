"""Arithmetic of matrices on trees: sums, products, scalar multiples, transposes.

`settle` turns a tree with matrices among its operands into one matrix whose entries are
trees; a tree without matrices comes back as it is.
"""

from collections.abc import Sequence

from verifiers.mathlib.errors import TooLarge, Unparsable
from verifiers.mathlib.nodes import Node, num

MAX_ENTRIES = 400
_ARITHMETIC = frozenset(("add", "mul", "neg", "div", "pow"))


def settle(node: Node) -> Node:
    """The matrix that a tree of matrix arithmetic stands for; Unparsable when shapes differ."""
    if node.kind not in _ARITHMETIC:
        return node
    args = [settle(arg) for arg in node.args]
    if all(arg.kind != "matrix" for arg in args):
        return node
    first = args[0]
    if node.kind == "add":
        for other in args[1:]:
            first = _sum(first, other)
        return first
    if node.kind == "mul":
        for other in args[1:]:
            first = _product(first, other)
        return first
    if node.kind == "neg":
        return _product(num(-1), first)
    if node.kind == "div" and args[1].kind != "matrix":
        return _product(Node("div", (num(1), args[1])), first)
    if node.kind == "pow" and args[1] in (Node("sym", ("T",)), Node("text", ("T",))):
        return _matrix(list(zip(*_rows(first), strict=True)))
    raise Unparsable(f"a {node.kind} of matrices")


def _rows(node: Node) -> list[tuple[Node, ...]]:
    return [row.args for row in node.args]


def _matrix(rows: Sequence[Sequence[Node]]) -> Node:
    return Node("matrix", tuple(Node("tuple", tuple(row)) for row in rows))


def _sum(a: Node, b: Node) -> Node:
    if a.kind != "matrix" or b.kind != "matrix":
        raise Unparsable("a sum of a matrix and a number")
    left, right = _rows(a), _rows(b)
    if [len(row) for row in left] != [len(row) for row in right]:
        raise Unparsable("a sum of matrices of different shape")
    return _matrix(
        [
            [Node("add", pair) for pair in zip(x, y, strict=True)]
            for x, y in zip(left, right, strict=True)
        ]
    )


def _product(a: Node, b: Node) -> Node:
    if a.kind != "matrix" and b.kind != "matrix":
        return Node("mul", (a, b))
    if a.kind != "matrix" or b.kind != "matrix":
        scalar, matrix = (b, a) if a.kind == "matrix" else (a, b)
        return _matrix([[Node("mul", (scalar, cell)) for cell in row] for row in _rows(matrix)])
    left, columns = _rows(a), list(zip(*_rows(b), strict=True))
    if len(left[0]) != len(columns[0]):
        raise Unparsable("a product of matrices whose shapes do not fit")
    if len(left) * len(columns) * len(columns[0]) > MAX_ENTRIES:
        raise TooLarge(f"a matrix product of more than {MAX_ENTRIES} terms")
    return _matrix([[_dot(row, column) for column in columns] for row in left])


def _dot(row: Sequence[Node], column: Sequence[Node]) -> Node:
    terms = tuple(Node("mul", pair) for pair in zip(row, column, strict=True))
    return Node("add", terms) if len(terms) > 1 else terms[0]
