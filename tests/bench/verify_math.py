r"""Math answers per second: our verifier on two cores against math-verify in one process.

Every round takes fresh rows, no two alike, of the mix in `MIX`: about a third of the answers is
wrong, right ones are mostly written in another form than the truth. Ours is
`verifiers.score_many(rows, workers=2)`, worker processes and all; the peer is math-verify called
plainly, `verify(parse(gold), parse(answer))` with its defaults. Both have 5 s per step (the peer
for each call, ours for reading the truth and for judging the answer), neither keeps anything from
one row to the next but sympy's own cache. Starting and importing are left out on both sides; the
two run in turn and the medians are compared. The label of a row is known from the way it was made.

    python -m tests.bench.verify_math [--rounds 3] [--rows 300] [--hanging 6]

Prints JSON lines: `math_rows_per_s`; `math_accuracy`, the share of right verdicts;
`math_agreement`, the share of rows on which the two give the same verdict (ours and peer alike);
`seconds_per_hanging_row`, what a row of `HANGING` adds to a batch of short ones.
"""

import argparse
import itertools
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import math_verify

import verifiers
from verifiers.kinds import math as math_kind

WORKERS = 2
PEER = "math-verify 0.9.0 in one process"


@dataclass(frozen=True)
class Row:
    """A truth, an answer for the box, and whether the answer is right."""

    kind: str
    truth: str
    answer: str
    right: bool


Made = tuple[str, str, str]
"""Truth, a right answer, a wrong answer."""


def integers(r: Random) -> Made:
    n = r.randint(-(10**6), 10**6)
    return str(n), f"{n}.0" if r.random() < 0.2 else str(n), str(n + r.randint(1, 9))


def decimals(r: Random) -> Made:
    n, places = r.randint(1, 10**6), r.randint(1, 4)
    text = f"{n / 10**places:.{places}f}"
    return text, rf"\frac{{{n}}}{{{10**places}}}", text + "1"


def fractions(r: Random) -> Made:
    a, b, k = r.randint(1, 999), r.randint(2, 999), r.randint(2, 9)
    return rf"\frac{{{a}}}{{{b}}}", rf"\dfrac{{{a * k}}}{{{b * k}}}", rf"\frac{{{a}}}{{{b + 1}}}"


def radicals(r: Random) -> Made:
    a, b, c = r.randint(2, 60), r.randint(2, 99), r.randint(1, 99)
    truth = rf"{c}+{a}\sqrt{{{b}}}"
    return truth, rf"\sqrt{{{a * a * b}}}+{c}", rf"\sqrt{{{a * a * b + 1}}}+{c}"


def constants(r: Random) -> Made:
    a, b = r.randint(2, 99), r.randint(2, 99)
    truth = rf"\frac{{{a}\pi}}{{{b}}}"
    other = f"{a}*pi/{b}" if r.random() < 0.5 else rf"{a}\pi / {b}"
    return truth, other, rf"\frac{{{a + 1}\pi}}{{{b}}}"


def trigonometry(r: Random) -> Made:
    a, b = r.randint(2, 99), r.randint(2, 9)
    return rf"{a}", rf"{2 * a}\sin\frac{{\pi}}{{6}}", rf"{b * a}\cos\frac{{\pi}}{{7}}"


def logarithms(r: Random) -> Made:
    a, b = r.randint(2, 40), r.randint(2, 9)
    return rf"{b}\ln {a}", rf"\ln\left({a**b}\right)", rf"{b}\ln {a + 1}"


def sets(r: Random) -> Made:
    items = r.sample(range(-99, 99), r.randint(2, 5))
    other = r.sample(items, len(items))
    return _set(items), _set(other), _set(other[1:])


def _set(items: Sequence[int]) -> str:
    return rf"\{{{', '.join(map(str, items))}\}}"


def tuples(r: Random) -> Made:
    a, b, c = r.sample(range(-99, 99), 3)
    return f"({a}, {b}, {c})", rf"\left({a},{b},{c}\right)", f"({b}, {a}, {c})"


def intervals(r: Random) -> Made:
    a, b = sorted(r.sample(range(-99, 99), 2))
    left = "[("[r.random() < 0.5]
    truth = rf"{left}{a}, {b})"
    return truth, rf"\left{left}{a}.0,{b}\right)", rf"{left}{a}, {b}]"


def unions(r: Random) -> Made:
    a, b = sorted(r.sample(range(-99, 99), 2))
    truth = rf"(-\infty, {a}) \cup ({b}, \infty)"
    return truth, rf"({b},\infty)\cup(-\infty,{a})", rf"(-\infty,{a}]\cup({b},\infty)"


def polynomials(r: Random) -> Made:
    a, b = r.randint(1, 60), r.randint(1, 60)
    truth = f"x^2+{a + b}x+{a * b}"
    return truth, f"(x+{a})(x+{b})", f"x^2+{a + b}x+{a * b + 1}"


def rational_functions(r: Random) -> Made:
    a, b = r.randint(1, 60), r.randint(2, 60)
    truth = rf"\frac{{{b}}}{{x+{a}}}"
    return truth, rf"\frac{{{2 * b}}}{{2x+{2 * a}}}", rf"\frac{{{b}}}{{x-{a}}}"


def equations(r: Random) -> Made:
    a, b = r.randint(2, 60), r.randint(1, 60)
    return f"y={a}x+{b}", f"{a}x-y+{b}=0", f"y={a}x-{b}"


def inequalities(r: Random) -> Made:
    a = r.randint(1, 999)
    return rf"x \ge {a}", rf"{a} \le x", rf"x > {a}"


def matrices(r: Random) -> Made:
    cells = [r.randint(-99, 99) for _ in range(4)]
    wrong = [*cells[:3], cells[3] + 1]
    return _matrix("pmatrix", cells), _matrix("bmatrix", cells), _matrix("pmatrix", wrong)


def _matrix(name: str, cells: Sequence[int]) -> str:
    a, b, c, d = cells
    return rf"\begin{{{name}}} {a} & {b} \\ {c} & {d} \end{{{name}}}"


def units(r: Random) -> Made:
    n, unit = r.randint(1000, 99999), r.choice(["cm", "meters", "dollars", "km/h"])
    grouped = f"{n:,}".replace(",", "{,}")
    return str(n), rf"{grouped} \text{{ {unit}}}", rf"{n + 1} \text{{ {unit}}}"


def percentages(r: Random) -> Made:
    n = r.randint(1, 9999)
    return rf"{n / 10}\%", rf"\frac{{{n}}}{{10}}\%", rf"{n / 10}1\%"


MIX: dict[Callable[[Random], Made], int] = {
    integers: 12, decimals: 6, fractions: 12, radicals: 10, constants: 6, trigonometry: 4,
    logarithms: 4, sets: 7, tuples: 5, intervals: 5, unions: 4, polynomials: 8,
    rational_functions: 3, equations: 3, inequalities: 3, matrices: 3, units: 3, percentages: 2,
}  # fmt: skip
"""Rows of each kind in a hundred."""

HANGING = (
    ("tower", "7", "9^{9^{9^{9}}}"),
    ("nested brackets", "7", "(" * 3000 + "7" + ")" * 3000),
    ("factorial", "7", "(10^{9})!"),
    ("sum", "7", r"\sum_{k=1}^{10^{6}} \frac{1}{k^k+1}"),
    ("integral", "7", r"\int_0^1 \frac{\sin(x^x)\ln(1+x)}{\sqrt{1+x^5}} dx"),
    ("roots", "7", r"\sqrt{" * 200 + "7" + "}" * 200),
)


def rows(seed: int) -> Iterator[Row]:
    """Endless rows of the mix in random order, no two with the same texts."""
    random, seen = Random(seed), set()
    kinds, weights = list(MIX), list(MIX.values())
    while True:
        make = random.choices(kinds, weights)[0]
        truth, good, bad = make(random)
        right = random.random() < 0.65
        answer = good if right else bad
        if (truth, answer) not in seen:
            seen.add((truth, answer))
            yield Row(make.__name__, truth, answer, right)


def as_task(row: Row) -> dict[str, Any]:
    return {
        "task_type": "verifiable_math",
        "completion": rf"<think>So.</think>The answer is $\boxed{{{row.answer}}}$.",
        "verification_info": {"ground_truth": row.truth},
    }


def ours(batch: Sequence[Row]) -> list[bool]:
    scores = verifiers.score_many([as_task(row) for row in batch], workers=WORKERS)
    return [score.score == 1 for score in scores]


def peer(batch: Sequence[Row]) -> list[bool]:
    return [
        math_verify.verify(
            math_verify.parse(f"${row.truth}$"),
            math_verify.parse(rf"The answer is $\boxed{{{row.answer}}}$."),
        )
        for row in batch
    ]


SIDES = {"ours": ours, "peer": peer}


def timed(batches: Sequence[Sequence[Row]]) -> tuple[dict[str, list[float]], list[dict[str, Any]]]:
    """Seconds per batch of each side, taken in turn, and the verdicts per batch."""
    seconds: dict[str, list[float]] = {name: [] for name in SIDES}
    verdicts = []
    for number, batch in enumerate(batches):
        found = {}
        for name in list(SIDES) if number % 2 == 0 else reversed(list(SIDES)):
            started = time.perf_counter()
            found[name] = SIDES[name](batch)
            seconds[name].append(time.perf_counter() - started)
            print(f"{number}: {name} {seconds[name][-1]:.2f} s", file=sys.stderr, flush=True)
        verdicts.append(found)
    return seconds, verdicts


def figure(metric: str, mine: float, theirs: float, ratio: float, unit: str) -> None:
    print(
        json.dumps(
            {
                "bench": "verify_math",
                "metric": metric,
                "ours": round(mine, 4),
                "peer": round(theirs, 4),
                "peer_name": PEER,
                "ratio": round(ratio, 3),
                "unit": unit,
            }
        ),
        flush=True,
    )


def throughput(rounds: int, count: int) -> None:
    stream = rows(seed=11)
    batches = [list(itertools.islice(stream, count)) for _ in range(rounds)]
    seconds, verdicts = timed(batches)
    rate = {name: count / statistics.median(seconds[name]) for name in SIDES}
    figure("math_rows_per_s", rate["ours"], rate["peer"], rate["ours"] / rate["peer"], "rows/s")
    pairs = [
        (row, found["ours"][i], found["peer"][i])
        for batch, found in zip(batches, verdicts, strict=True)
        for i, row in enumerate(batch)
    ]
    right = [sum(pair[side] == pair[0].right for pair in pairs) / len(pairs) for side in (1, 2)]
    figure("math_accuracy", *right, right[0] / right[1], "share")
    same = sum(mine == theirs for _, mine, theirs in pairs) / len(pairs)
    figure("math_agreement", same, same, 1.0, "share")
    for row, mine, theirs in pairs:
        if mine != theirs or mine != row.right:
            print(f"{row}: ours {mine}, peer {theirs}", file=sys.stderr)


def hanging(count: int) -> None:
    stream = rows(seed=12)
    easy = list(itertools.islice(stream, 40))
    lost: dict[str, list[float]] = {name: [] for name in SIDES}
    base = {name: s[0] for name, s in timed([easy])[0].items()}
    for name, truth, answer in HANGING[:count]:
        print(f"hanging: {name}", file=sys.stderr)
        batch = [*easy[:20], Row(name, truth, answer, False), *easy[20:]]
        seconds, verdicts = timed([batch])
        assert not verdicts[0]["ours"][20], name
        for side in SIDES:
            lost[side].append(max(0.0, seconds[side][0] - base[side]))
    mine, theirs = (statistics.mean(lost[side]) for side in ("ours", "peer"))
    figure("seconds_per_hanging_row", mine, theirs, theirs / max(mine, 0.001), "s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--hanging", type=int, default=len(HANGING))
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)  # the peer logs every timeout
    assert math_kind.KIND.time_limit == 5.0, "the peer's limit per call"
    warm = list(itertools.islice(rows(seed=10), 20))
    for side in SIDES.values():
        side(warm)
    throughput(arguments.rounds, arguments.rows)
    if arguments.hanging:
        hanging(arguments.hanging)


if __name__ == "__main__":
    main()
