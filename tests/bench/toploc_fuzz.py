"""Hostile input for the parsers and verifiers of toploc, found and made small by hypothesis.

    nice -n 19 python -m tests.bench.toploc_fuzz [--seconds 600] [--seed 0] [--only judged ...]

Nothing may come out but the package's own errors and refusals, and nothing may be accepted but what
was honestly made. The targets, with what each asserts, are in the modules imported here; each gets
the same time. Prints one JSON line per figure; ends with the smallest input at the first finding.
"""

import argparse
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import hypothesis
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.bench import (
    toploc_fuzz_groups,
    toploc_fuzz_proofs,
    toploc_fuzz_signed,
    toploc_fuzz_tokens,
)

TARGETS = (
    toploc_fuzz_proofs.TARGETS
    | toploc_fuzz_signed.TARGETS
    | toploc_fuzz_tokens.TARGETS
    | toploc_fuzz_groups.TARGETS
)
ALL = tuple(TARGETS)
ROUND = 100
"""Examples that hypothesis makes in one go; within them it varies what it has already made."""


@dataclass
class Tally:
    """What one target has had."""

    examples: int = 0
    seconds: float = 0.0


def one_round(name: str, seed: int, examples: int = ROUND) -> int:
    """Some examples of one target; returns their number. Raises a finding with its input."""
    check, strategies = TARGETS[name]
    count = 0

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.target, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @hypothesis.seed(seed)
    @given(st.tuples(*strategies))
    def example(values: tuple[object, ...]) -> None:
        nonlocal count
        count += 1
        check(*values)

    example()
    return count


def fuzz(
    seconds: float, seed: int = 0, names: Sequence[str] = ALL, examples: int = ROUND
) -> dict[str, Tally]:
    """Try the targets for so long in all, at least one round of each; what each has had."""
    tallies = {name: Tally() for name in names}
    end = time.monotonic() + seconds
    number = 0
    while number < len(names) or time.monotonic() < end:
        name = min(names, key=lambda one: tallies[one].seconds)
        start = time.monotonic()
        tallies[name].examples += one_round(name, seed * 1_000_003 + number, examples)
        tallies[name].seconds += time.monotonic() - start
        number += 1
    return tallies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=ALL, default=ALL)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("toploc.build").setLevel(logging.CRITICAL)
    tallies = fuzz(arguments.seconds, arguments.seed, arguments.only)
    for name, tally in tallies.items():
        line(f"examples/{name}", tally.examples, "inputs without a finding")
        line(f"examples_per_s/{name}", round(tally.examples / tally.seconds, 1), "1/s")


def line(metric: str, ours: float, unit: str) -> None:
    figures = {"bench": "toploc_fuzz", "metric": metric, "ours": ours, "peer": None,
               "peer_name": None, "ratio": None, "unit": unit}  # fmt: skip
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
