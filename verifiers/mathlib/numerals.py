"""Numbers as they are written: decimals, other bases, repeating decimals, of any length."""

from abc import abstractmethod
from fractions import Fraction

from verifiers.mathlib.cursor import Cursor
from verifiers.mathlib.errors import Unparsable
from verifiers.mathlib.nodes import Node, num


class Numerals(Cursor):
    """A number token and what belongs to it."""

    @abstractmethod
    def _argument(self) -> Node: ...

    def _number(self) -> Node:
        text = self._take("num").value
        if self._next.kind == "overline" and "." in text:
            return self._repeating(text)
        text = text.rstrip(".")
        if self._next.kind == "_":
            self._take()
            base = self._argument()
            if base.kind != "num" or "." in text or not 2 <= base.args[0] <= 10:
                raise Unparsable("a number with an odd index")
            try:
                return num(int(text, int(base.args[0])))
            except ValueError as error:
                raise Unparsable("a digit that the base does not have") from error
        if len(text) > 4000:
            return num(_long(text))
        return num(text)

    def _repeating(self, text: str) -> Node:
        self._take("overline")
        self._take("{")
        period = self._take("num").value
        self._take("}")
        if not period.isdigit():
            raise Unparsable("an odd period")
        places = len(text.split(".")[1])
        tail = Fraction(int(period), (10 ** len(period) - 1) * 10**places)
        return num(Fraction(text.rstrip(".")) + tail)


def _long(text: str) -> Fraction:
    """A number beyond Python's limit on digits, by halves."""

    def integer(digits: str) -> int:
        if len(digits) <= 2000:
            return int(digits or "0")
        half = len(digits) // 2
        shift: int = 10 ** (len(digits) - half)
        return integer(digits[:half]) * shift + integer(digits[half:])

    whole, _, part = text.partition(".")
    return Fraction(integer(whole + part), 10 ** len(part))
