"""A few seconds of the fuzzer; `python -m tests.bench.toploc_fuzz` runs it for longer."""

import time

from tests.bench.toploc_fuzz import TARGETS, fuzz


def test_hostile_input_is_refused_and_crashes_nothing():
    counts = fuzz(seconds=8, seed=time.time_ns())
    assert counts.total() > len(TARGETS)
