"""The expressions of the grammar: sums, products, powers, functions, units.

Depth is bounded, sums and products are loops. The structures (brackets, sets, matrices)
are in grammar.py, which completes this class.
"""

import re
from abc import abstractmethod
from fractions import Fraction

from verifiers.mathlib.cursor import MAX_DEPTH
from verifiers.mathlib.errors import Unparsable
from verifiers.mathlib.nodes import Node, num
from verifiers.mathlib.numerals import Numerals
from verifiers.mathlib.tokens import Token

_STARTS = frozenset("num sym const func ( frac binom root { lfloor lceil env sum prod".split())
_SIMPLE = _STARTS - {"func", "(", "env", "sum", "prod"}
_ARC = {
    "sin": "asin",
    "cos": "acos",
    "tan": "atan",
    "cot": "acot",
    "sinh": "asinh",
    "cosh": "acosh",
}
_NAMES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "ln": "log", "ceil": "ceiling"}
_UNIT = re.compile(r"[A-Za-zµμ²³Ω°][A-Za-z0-9µμ²³Ω°/^*. \-()]*")


_NO_UNIT = frozenset(
    "is are was not no none if when where for with than least most more less about or and nor only "
    "any all but to from so then approximately undefined hundred thousand million billion trillion "
    "dozen percent half third quarter mod".split()
)


class Expressions(Numerals):
    """All that has a value."""

    @abstractmethod
    def _items(self, kind: str, *ends: str) -> Node: ...

    @abstractmethod
    def _bracket(self) -> Node: ...

    @abstractmethod
    def _set(self) -> Node: ...

    @abstractmethod
    def _matrix(self) -> Node: ...

    def _sum(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unparsable(f"nested deeper than {MAX_DEPTH}")
        terms = [self._signed()]
        while self._next.kind in ("+", "-", "pm", "mp"):
            terms.append(self._signed())
        self._depth -= 1
        return Node("add", tuple(terms)) if len(terms) > 1 else terms[0]

    def _signed(self) -> Node:
        sign = self._next.kind
        if sign not in ("+", "-", "pm", "mp"):
            return self._product()
        self._take()
        negative = sign == "-"
        while self._next.kind in ("+", "-"):
            negative ^= self._take().kind == "-"
        value = self._product()
        if sign in ("pm", "mp"):
            value = Node("pm", (sign, value))
        return Node("neg", (value,)) if negative else value

    def _product(self) -> Node:
        factors = [self._power()]
        while True:
            last = self._tokens[self._at - 1]
            if self._next.kind in ("*", "/"):
                divide = self._take().kind == "/"
                negative = False
                while self._next.kind in ("+", "-"):
                    negative ^= self._take().kind == "-"
                if divide and self._next.kind == "text":
                    self._unit()
                    continue
                factor = self._power()
                factor = Node("neg", (factor,)) if negative else factor
                if divide:
                    factors = [Node("div", (self._times(factors), factor))]
                else:
                    factors.append(factor)
            elif self._next.kind == "text" and factors[-1].kind != "text":
                self._unit()
            elif self._next.kind in _STARTS or (self._next.kind == "|" and not self._bars):
                if self._next.kind == "num" and last.kind in ("num", "text"):
                    raise Unparsable("two numbers side by side")  # also "5 feet 3 inches"
                mixed = self._mixed(factors)
                factors = [mixed] if mixed is not None else [*factors, self._power()]
            else:
                return self._times(factors)

    @staticmethod
    def _times(factors: list[Node]) -> Node:
        return Node("mul", tuple(factors)) if len(factors) > 1 else factors[0]

    def _mixed(self, factors: list[Node]) -> Node | None:
        r"""`2\frac{1}{3}` is a mixed number."""
        if not (
            len(factors) == 1
            and self._next.kind == "frac"
            and self._tokens[self._at - 1].kind == "num"
            and factors[0].kind == "num"
            and factors[0].args[0].denominator == 1
        ):
            return None
        part = self._power()
        if part.kind == "div" and all(arg.kind == "num" for arg in part.args):
            return Node("add", (factors[0], part))
        return Node("mul", (factors[0], part))

    def _unit(self) -> None:
        """A unit behind a value, dropped with its exponent."""
        word = self._take("text").value
        if not _UNIT.fullmatch(word) or _NO_UNIT & set(word.lower().split()):
            raise Unparsable(f"text {word[:30]!r} behind a value")
        if self._accept("^"):
            self._exponent()

    def _power(self) -> Node:
        base = self._postfix(self._atom())
        while self._next.kind == "^":
            self._take()
            if self._next.kind == "circ":
                self._take()
                base = self._degrees(base)
            elif self._next.kind == "{" and self._peek(1).kind == "circ":
                self._at += 2
                self._take("}")
                base = self._degrees(base)
            else:
                base = self._postfix(Node("pow", (base, self._exponent())))
        if self._accept("deg"):
            base = self._degrees(base)
        return base

    def _degrees(self, base: Node) -> Node:
        if self._next in (Token("sym", "C"), Token("sym", "F")):
            self._take()
        return Node("deg", (base,))

    def _exponent(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unparsable(f"nested deeper than {MAX_DEPTH}")
        negative = False
        while self._next.kind in ("+", "-"):
            negative ^= self._take().kind == "-"
        value = self._atom()
        if self._next.kind == "^" and self._peek(1).kind != "circ":
            self._take()
            value = Node("pow", (value, self._exponent()))
        self._depth -= 1
        return Node("neg", (value,)) if negative else value

    def _postfix(self, value: Node) -> Node:
        while True:
            if self._accept("!"):
                value = Node("func", ("factorial", value))
            elif self._accept("%"):
                value = Node("pct", (value,))
            else:
                return value

    def _atom(self) -> Node:
        token = self._next
        match token.kind:
            case "num":
                return self._number()
            case "sym":
                return self._applied(self._symbol())
            case "sum" | "prod":
                return self._series()
            case "const" | "field" | "text":
                self._take()
                if token.kind == "text" and len(token.value) == 1:
                    return Node("sym", (token.value,))
                return Node(token.kind, (token.value,))
            case "func":
                return self._function()
            case "(" | "[":
                return self._bracket()
            case "{":
                self._take()
                inner = self._items("list", "}")
                self._take("}")
                return inner
            case "lset":
                return self._set()
            case "empty":
                self._take()
                return Node("set", ())
            case "env":
                return self._matrix()
            case "frac" | "binom":
                self._take()
                top, bottom = self._argument(), self._argument()
                if token.kind == "frac":
                    return Node("div", (top, bottom))
                return Node("func", ("binomial", top, bottom))
            case "root":
                return self._root()
            case "|":
                self._take()
                self._bars += 1
                inner = self._sum()
                self._bars -= 1
                self._take("|")
                return Node("func", ("Abs", inner))
            case "lfloor" | "lceil":
                self._take()
                inner = self._sum()
                self._take("r" + token.kind[1:])
                return Node("func", ("floor" if token.kind == "lfloor" else "ceiling", inner))
        raise Unparsable(f"found {token.kind} {token.value[:20]}, expected a value")

    def _symbol(self) -> Node:
        name = self._take("sym").value
        while self._accept("'"):
            name += "'"
        if self._accept("_"):
            start = self._at
            self._argument()
            name += "_" + "".join(t.value or t.kind for t in self._tokens[start : self._at]).strip(
                "{}"
            )
        return Node("sym", (name,))

    def _applied(self, name: Node) -> Node:
        """`f(x)`, where the brackets hold one symbol or number only; else the name as it is."""
        if (
            self._next.kind != "("
            or self._peek(1).kind not in ("sym", "num")
            or self._peek(2).kind != ")"
            or self._peek(3).kind in ("^", "!")
        ):
            return name
        self._take()
        argument = self._symbol() if self._next.kind == "sym" else self._number()
        self._take(")")
        return Node("apply", (name, argument))

    def _series(self) -> Node:
        r"""`\sum_{k=a}^{b} term`; the term reaches to the next plus or minus."""
        kind = self._take().kind
        self._take("_")
        self._take("{")
        if self._next == Token("const", "i"):  # an index, and no imaginary unit from here on
            index = Token("sym", "i")
            self._tokens = [index if t == Token("const", "i") else t for t in self._tokens]
        variable = self._symbol()
        self._take("=")
        low = self._sum()
        self._take("}")
        self._take("^")
        high = self._argument()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unparsable(f"nested deeper than {MAX_DEPTH}")
        term = self._product()
        self._depth -= 1
        return Node("func", (kind, variable, low, high, term))

    def _argument(self) -> Node:
        r"""One LaTeX argument: a group or a single token; `\frac12` takes one digit each."""
        token = self._next
        if token.kind == "num" and len(token.value) > 1 and token.value.isdigit():
            self._tokens[self._at : self._at + 1] = [
                Token("num", token.value[0]),
                Token("num", token.value[1:]),
            ]
        if token.kind in ("(", "["):
            raise Unparsable("a bracket where an argument in braces is expected")
        return self._atom()

    def _root(self) -> Node:
        self._take("root")
        index: Node = num(2)
        if self._accept("["):
            index = self._sum()
            self._take("]")
        inner = self._bracket() if self._next.kind == "(" else self._argument()
        return Node("pow", (inner, Node("div", (num(1), index))))

    def _function(self) -> Node:
        name = self._take("func").value
        base: Node | None = None
        power: Node | None = None
        for _ in range(2):
            if name in ("log", "lg") and base is None and self._accept("_"):
                base = self._argument()
            elif power is None and self._next.kind == "^":
                self._take()
                power = self._exponent()
        args = self._call_arguments()
        if name == "lg":
            base = num(10)
        name = _NAMES.get(name, name)
        if power is not None and power == Node("neg", (num(1),)):
            if name not in _ARC:
                raise Unparsable(f"inverse of {name}")
            name, power = _ARC[name], None
        value = self._apply(name, args, base)
        return value if power is None else Node("pow", (value, power))

    @staticmethod
    def _apply(name: str, args: tuple[Node, ...], base: Node | None) -> Node:
        if name == "sqrt" and len(args) == 1:
            return Node("pow", (args[0], num(Fraction(1, 2))))
        if name == "exp" and len(args) == 1:
            return Node("pow", (Node("const", ("e",)), args[0]))
        if name == "Rational" and len(args) == 2:
            return Node("div", args)
        if base is not None:
            args = (*args, base)
        return Node("func", ("Abs" if name == "abs" else name, *args))

    def _call_arguments(self) -> tuple[Node, ...]:
        if self._next.kind == "(":
            self._take()
            bars, self._bars = self._bars, 0
            items = self._items("tuple", ")").args
            self._take(")")
            self._bars = bars
            return items
        factors: list[Node] = []
        while self._next.kind in _SIMPLE or (self._next.kind == "|" and not self._bars):
            factors.append(self._power())
        if not factors:
            raise Unparsable("a function without an argument")
        return (self._times(factors),)
