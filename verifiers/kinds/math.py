r"""R2: `verifiable_math`, the last balanced `\boxed{…}` against one or more truths.

Our own exact reader settles nearly all rows; what it does not know goes to math-verify's
LaTeX grammar, for whole texts only. Reading the truth is reported apart from reading the
answer, so that a hang is blamed on the right side.
"""

from collections.abc import Callable
from decimal import Decimal
from importlib.metadata import version
from typing import Any

from verifiers import extract, progress
from verifiers.errors import RowFault
from verifiers.kinds.base import Info, Kind
from verifiers.mathlib import compare, exact
from verifiers.mathlib.errors import TooLarge, Unparsable
from verifiers.mathlib.grammar import parse
from verifiers.mathlib.nodes import STRUCTURES, Node
from verifiers.result import Outcome, judged, no_answer, timed_out

MAX_BOXED = 50_000


def truth_texts(info: Info) -> list[str]:
    """The truths of the row as texts; a JSON number stands for its decimal digits."""
    if "ground_truth" not in info:
        raise RowFault("verification_info has no key ground_truth")
    value = info["ground_truth"]
    texts = [_text(item) for item in (value if isinstance(value, list) else [value])]
    if not texts:
        raise RowFault("verification_info.ground_truth is an empty list")
    return texts


def _text(value: Any) -> str:
    if isinstance(value, str) and value.strip():
        boxed = extract.last_boxed(value)
        return value if boxed is None else boxed
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        text = format(Decimal(repr(value)) if isinstance(value, float) else Decimal(value), "f")
        if text.lstrip("-").replace(".", "", 1).isdigit():
            return text
    raise RowFault(f"a truth must be a non-empty text or a number, got {value!r:.60}")


class Truth:
    """A truth read completely, by our grammar or by math-verify's."""

    def __init__(self, text: str):
        self.text = text
        self.node: Node | None = None
        self.expression: Any = None
        try:
            self.node = parse(text)
            if self.node.kind not in STRUCTURES:
                exact.rational(self.node)
        except Unparsable as error:
            self.expression = _fallback(text, error)

    def equals(self, node: Node | None, read: Callable[[], Any]) -> bool:
        """Equality with an answer: its tree, or what the second reader makes of it."""
        if self.node is not None and node is not None:
            return compare.equal(self.node, node)
        from verifiers.mathlib.build import expression
        from verifiers.mathlib.equality import expressions_equal

        mine = self.expression if self.node is None else expression(self.node)
        theirs = read() if node is None else expression(node)
        return expressions_equal(mine, theirs)


def _fallback(text: str, first: Unparsable) -> Any:
    from verifiers.mathlib import fallback

    try:
        return fallback.read(text)
    except Unparsable as error:
        raise Unparsable(f"{first}; {error}") from error


def _read_truths(info: Info) -> list[Truth]:
    truths = []
    for text in truth_texts(info):
        try:
            truths.append(Truth(text))
        except (Unparsable, TooLarge) as error:
            raise RowFault(f"truth {text[:60]!r} cannot be read: {error}") from error
    return truths


def _judge(answer: str, info: Info) -> Outcome:
    truths = _read_truths(info)
    progress.report(progress.ANSWER)
    boxed = extract.last_boxed(answer)
    if boxed is None:
        return no_answer("no \\boxed{…} whose braces balance")
    if len(boxed) > MAX_BOXED:
        return judged(0, f"the boxed text has {len(boxed)} characters, more than {MAX_BOXED}")
    try:
        return _compare(truths, boxed)
    except TooLarge as error:
        return timed_out(f"the answer holds {error}")
    except (Unparsable, RecursionError) as error:
        return judged(0, f"not equal: {error}"[:200])


def _compare(truths: list[Truth], boxed: str) -> Outcome:
    node: Node | None = None
    first = Unparsable("")
    try:
        node = parse(boxed)
    except Unparsable as error:
        first = error
    for truth in truths:
        try:
            if truth.equals(node, lambda: _fallback(boxed, first)):
                return judged(1, f"equals {truth.text[:60]}")
        except (Unparsable, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
            detail = f"not comparable: {type(error).__name__}: {error}"
            continue
        detail = "not equal"
    return judged(0, detail[:200])


def _quick(answer: str, info: Info) -> bool:
    """Rational against rational needs no sympy; anything else goes to the killable process."""
    boxed = extract.last_boxed(answer)
    if boxed is not None and len(boxed) > 500:
        return False
    try:
        nodes = [parse(text) for text in truth_texts(info)]
        nodes += [parse(boxed)] if boxed is not None else []
        return all(
            node.kind not in STRUCTURES and exact.rational(node) is not None for node in nodes
        )
    except RowFault:
        return True
    except (Unparsable, TooLarge, RecursionError):
        return False


KIND = Kind(
    name="math",
    version=2,
    task_types=("verifiable_math",),
    binary=True,
    judge=_judge,
    quick=_quick,
    time_limit=5.0,
    reports_phase=True,
    settings={
        "max_boxed": MAX_BOXED,
        "max_bits": exact.MAX_BITS,
        "libraries": [f"{name} {version(name)}" for name in ("sympy", "latex2sympy2-extended")],
    },
    self_tests=(
        ("\\boxed{\\frac{\\sqrt{5}-1}{2}}", {"ground_truth": "(sqrt(5)-1)/2"}, 1.0),
        ("\\boxed{0.3333}", {"ground_truth": "\\frac{1}{3}"}, 0.0),
        ("\\boxed{\\int_0^1 2x \\, dx}", {"ground_truth": "1"}, 1.0),
        ("\\boxed{1+\\frac{1}{\\mathrm{e}}}", {"ground_truth": "1-\\frac{1}{\\mathrm{e}}"}, 0.0),
        ("\\boxed{5}", {"ground_truth": ""}, None),
    ),
)
