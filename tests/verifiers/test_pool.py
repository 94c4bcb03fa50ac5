"""score_many: order, hangs, crashes, odd rows; score: never hanging."""

import contextlib
import gc
import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

import verifiers
from verifiers import pool, registry
from verifiers.host import spawn


def math_row(value: int, truth: object) -> dict[str, object]:
    return {
        "task_type": "verifiable_math",
        "completion": f"<think>t</think>\\boxed{{{value}}}",
        "verification_info": {"ground_truth": truth},
    }


# Quadratic work of minutes in difflib: the clock has to end it.
HANG = {
    "task_type": "git_diff",
    "completion": "```diff\n" + "ab" * 60_000 + "\n```",
    "verification_info": {"golden_diff": "ba" * 60_000},
}


@pytest.fixture
def short_limit(monkeypatch):
    """Half a second for git_diff, in this process's clock."""
    from dataclasses import replace

    kind = replace(registry.kind_of("git_diff"), time_limit=0.5)
    monkeypatch.setitem(registry._BY_TYPE, "git_diff", kind)


def test_order_is_kept() -> None:
    rows = [math_row(i, i if i % 3 else i + 1) for i in range(500)]
    got = list(verifiers.score_many(rows, workers=2))
    assert [score.score for score in got] == [1.0 if i % 3 else 0.0 for i in range(500)]


def test_info_as_json_text_and_generators() -> None:
    rows = ({**math_row(i, i), "verification_info": f'{{"ground_truth": {i}}}'} for i in range(5))
    assert [score.score for score in verifiers.score_many(rows, workers=1)] == [1.0] * 5


def test_a_worker_that_was_started_before_is_the_one_that_scores(monkeypatch) -> None:
    started = []
    monkeypatch.setattr(pool, "_idle", type(pool._idle)())
    monkeypatch.setattr(pool, "spawn", lambda: started.append(spawn()) or started[-1])
    verifiers.start_worker()
    assert len(started) == 1
    assert next(verifiers.score_many([math_row(7, 7)], workers=1)).score == 1.0
    assert len(started) == 1
    for slot in pool._idle:
        slot.stop()


def test_no_rows() -> None:
    assert list(verifiers.score_many([], workers=2)) == []


def test_a_hanging_row_costs_its_limit_and_nothing_else(short_limit) -> None:
    rows = [math_row(i, i) for i in range(40)]
    rows[7] = rows[21] = HANG
    got = list(verifiers.score_many(rows, workers=2))
    assert [i for i, score in enumerate(got) if score.score != 1.0] == [7, 21]
    assert {(got[i].score, got[i].status) for i in (7, 21)} == {(0.0, "timeout")}
    assert all(got[i].seconds >= 0.4 for i in (7, 21))


def test_score_does_not_hang(short_limit) -> None:
    started = time.monotonic()
    got = verifiers.score(**HANG)
    assert (got.score, got.status) == (0.0, "timeout")
    assert time.monotonic() - started < 60
    assert verifiers.score(**math_row(3, "\\sqrt{9}")).score == 1.0


def test_a_tower_of_powers_is_a_timeout_for_the_answer_and_no_truth() -> None:
    tower = "9^{9^{9^{9}}}"
    answer = verifiers.score("verifiable_math", f"\\boxed{{{tower}}}", {"ground_truth": "7"})
    assert (answer.score, answer.status) == (0.0, "timeout")
    truth = verifiers.score("verifiable_math", "\\boxed{7}", {"ground_truth": tower})
    assert (truth.score, truth.status) == (None, "unverifiable")


def templates() -> list[psutil.Process]:
    """Processes that fork workers for this one; whoever else ran here may have left children."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "verifiers.worker" in " ".join(child.cmdline()):
                found.append(child)
    return found


def test_a_killed_worker_loses_no_row() -> None:
    rows = [math_row(i, f"\\sqrt{{{i * i}}}") for i in range(300)]
    results = verifiers.score_many(rows, workers=2)
    first = [next(results) for _ in range(5)]
    for worker in [worker for template in templates() for worker in template.children()]:
        os.kill(worker.pid, signal.SIGKILL)
    assert [score.score for score in [*first, *results]] == [1.0] * 300


def test_a_killed_template_is_replaced() -> None:
    handle = spawn()
    handle.kill()
    for template in templates():
        template.kill()
        template.wait(10)
    assert next(verifiers.score_many([math_row(1, 1)], workers=1)).score == 1.0


def test_abandoned_iterators_leave_no_worker() -> None:
    results = verifiers.score_many([math_row(i, i) for i in range(100)], workers=2)
    next(results)
    results.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        # Warm ones that hold no row are kept.
        if sum(len(template.children()) for template in templates()) <= len(pool_idle()):
            return
        time.sleep(0.1)
    raise AssertionError("workers are left")


def test_an_iterator_that_the_garbage_collector_ends_keeps_its_workers_usable() -> None:
    rows = [math_row(1, 1), math_row(2, 2)]
    list(verifiers.score_many(rows, workers=2))
    gc.collect()  # the sockets are older than the iterator, so the collector ends them first
    results = verifiers.score_many([math_row(i, i) for i in range(10)], workers=2)
    next(results)
    cycle = [results]
    cycle.append(cycle)
    del results, cycle
    gc.collect()
    assert [score.score for score in verifiers.score_many(rows, workers=2)] == [1.0, 1.0]


def pool_idle() -> list[object]:
    return [slot for slot in pool._idle if slot.handle is not None]


@pytest.mark.parametrize(
    ("row", "status"),
    [
        ({}, "unverifiable"),
        ({"task_type": None}, "unverifiable"),
        ({"task_type": "verifiable_math"}, "unverifiable"),
        (
            {"task_type": "verifiable_math", "completion": None, "verification_info": {}},
            "unverifiable",
        ),
        ({"task_type": "ifeval", "completion": "x", "verification_info": "[1]"}, "unverifiable"),
        ({"task_type": "ifeval", "completion": "x", "verification_info": "{"}, "unverifiable"),
        ({"task_type": "ifeval", "completion": "x", "verification_info": {1, 2}}, "unverifiable"),
        ({"task_type": ["list"], "completion": "x", "verification_info": {}}, "unverifiable"),
    ],
)
def test_odd_rows_are_unverifiable(row, status) -> None:
    (many,) = verifiers.score_many([row], workers=1)
    one = verifiers.score(row.get("task_type"), row.get("completion"), row.get("verification_info"))
    assert (many.score, many.status) == (one.score, one.status) == (None, status)


def test_lone_surrogates_and_nul_pass() -> None:
    row = math_row(1, 1)
    row["completion"] = "\ud83d \x00 \\boxed{1}"
    assert [s.score for s in verifiers.score_many([row], workers=1)] == [1.0]


def test_threads_may_score() -> None:
    def one(i: int) -> float | None:
        return verifiers.score(**math_row(i, f"\\sqrt{{{i * i}}}")).score

    before = set(threading.enumerate())
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(one, range(20))) == [1.0] * 20
    assert set(threading.enumerate()) <= before


def test_require_think() -> None:
    row = math_row(1, 1)
    bare = {**row, "completion": "\\boxed{1}"}
    got = list(verifiers.score_many([row, bare], workers=1, require_think=True))
    assert [(s.score, s.status) for s in got] == [(1.0, "ok"), (0.0, "no_answer")]
    assert got[0].verifier_config != next(verifiers.score_many([row], workers=1)).verifier_config


def test_bad_number_of_workers() -> None:
    with pytest.raises(verifiers.VerifiersError, match="at least 1"):
        next(verifiers.score_many([math_row(1, 1)], workers=0))


def test_code_rows_in_workers(sandbox_here) -> None:
    tests = json.dumps({"inputs": ["1\n", "5\n"], "outputs": ["2\n", "6\n"]})
    good = "```python\nprint(int(input()) + 1)\n```"
    rows = [
        {"task_type": "prime_rl_code", "completion": c, "verification_info": {"test_cases": tests}}
        for c in [good, "```python\nprint(2)\n```", good]
    ]
    assert [s.score for s in pool.score_many(rows, workers=2)] == [1, 0, 1]


def test_a_killed_worker_takes_its_sandbox_along(sandbox_here, no_warm_workers) -> None:
    tests = json.dumps({"inputs": [""], "outputs": [""]})
    sleeper = {
        "task_type": "prime_rl_code",
        "completion": "```python\nimport time\ntime.sleep(14)\n```",
        "verification_info": {"test_cases": tests},
    }

    def sandboxes() -> set[int]:
        """Those of workers, not of this process."""
        found = set()
        for template in templates():
            with contextlib.suppress(psutil.Error):
                below = template.children(recursive=True)
                found |= {child.pid for child in below if child.name() == "bwrap"}
        return found

    results = verifiers.score_many([math_row(1, 1), sleeper], workers=1)
    next(results)
    deadline = time.monotonic() + 100
    while not sandboxes() and time.monotonic() < deadline:
        time.sleep(0.1)
    held = sandboxes()
    assert held
    results.close()  # the sleeper's worker is killed, an idle one would be kept
    deadline = time.monotonic() + 10
    while sandboxes() & held and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not sandboxes() & held
