"""A few seconds of the fuzzer; `python -m tests.bench.toploc_fuzz` runs it for longer."""

import time

from tests.bench.toploc_fuzz import TARGETS, fuzz


def test_hostile_input_is_refused_and_crashes_nothing():
    tallies = fuzz(seconds=5, seed=time.time_ns() % 2**32, examples=25)
    assert set(tallies) == set(TARGETS)
    assert all(tally.examples > 10 for tally in tallies.values())
