"""Programs per second: warm sandboxes against a fresh bubblewrap and interpreter for each test.

Both sides take the same distinct short programs (under 5 ms each) with one test each, the same
limits (resources, system call filter, namespaces, user id, mounts) and the same number of programs
at once. Ours is `score_many`; the other starts, for each test, `bwrap` with a new interpreter that
takes on the same limits, reads the program, runs it and ends; its output is compared in the same
way. The sides run in turn on parts of the programs; rates are medians over the parts.

    python -m tests.bench.verify_code [--rounds 5] [--programs 300]

Prints JSON lines: `code_candidates_per_s`, the milliseconds of a test in a warm sandbox
(`code_sandbox_ms`) and where they go (`code_sandbox_ms/<part>`, ours only).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.bench.verify_rows import code_row
from verifiers import score_many, strict_json
from verifiers.extract import answer_part, last_block
from verifiers.kinds.code import LIMITS, same_output
from verifiers.sandbox import cage, launch, profile, run, seccomp, slots

PARALLEL = os.cpu_count() or 1
# What a plain harness does: limits, filter, program. It is given by `-c`.
FRESH = """
import json, os, resource, sys
sys.path.insert(0, "/guest")
from guest.confine import become, limit_resources, load_filter
job = json.loads(sys.stdin.buffer.readline())
become(job["uid"])
limit_resources(job["limits"])
load_filter(bytes.fromhex(job["guest_filter"]), job["placeholder"])
load_filter(bytes.fromhex(job["program_filter"]), job["placeholder"])
space = {"__name__": "__main__" if job["call"] is None else "candidate"}
exec(compile(job["source"], "main.py", "exec"), space)
if job["call"] is not None:
    print(json.dumps(getattr(space["Solution"](), job["call"])(*job["arguments"])))
"""


@dataclass(frozen=True)
class Program:
    """One program and its test."""

    row: dict[str, Any]
    source: str
    stdin: str
    call: str | None
    expected: str
    right: bool


def program(number: int) -> Program:
    """Program number n of the benchmark."""
    task_type, completion, info, score = code_row(number)
    tests = json.loads(info["test_cases"])
    row = {"task_type": task_type, "completion": completion, "verification_info": info}
    source = last_block(answer_part(completion) or "", "python")
    assert source is not None
    call, text = tests.get("fn_name"), tests["inputs"][0]
    return Program(row, source, text, call, tests["outputs"][0], score == 1.0)


def ours(programs: list[Program]) -> list[bool]:
    """Verdicts of `score_many`."""
    rows = [one.row for one in programs]
    return [score.score == 1.0 for score in score_many(rows, workers=PARALLEL)]


def fresh(programs: list[Program]) -> list[bool]:
    """Verdicts of a new sandbox and interpreter for each program."""
    with ThreadPoolExecutor(PARALLEL) as threads:
        return list(threads.map(_fresh, programs))


def _fresh(one: Program) -> bool:
    slot = slots.lease() if os.geteuid() == 0 else None
    guest_filter, program_filter = seccomp.programs(True)
    job = {
        "uid": slot.uid if slot else -1,
        "limits": LIMITS.rlimits(1),
        "guest_filter": guest_filter.hex(),
        "program_filter": program_filter.hex(),
        "placeholder": seccomp.OWN_PID,
        "source": one.source,
        "call": one.call,
        "arguments": None if one.call is None else [json.loads(one.stdin)],
    }
    argv = profile.bubblewrap(profile.package_mounts(profile.PLAIN), slot.uid if slot else -1)
    argv += [profile.python_path(), "-S", "-s", "-P", "-B", "-X", "utf8", "-c", FRESH]
    data = json.dumps(job).encode() + b"\n" + (b"" if one.call else one.stdin.encode())
    try:
        done = subprocess.run(
            argv, input=data, capture_output=True, timeout=LIMITS.wall_seconds, env={}, cwd="/"
        )
    finally:
        if slot:
            slot.release()
    if one.call is None:
        return same_output(done.stdout, one.expected)
    try:
        return strict_json.deep_equal(
            strict_json.loads(done.stdout.decode()), strict_json.loads(one.expected)
        )
    except strict_json.InvalidJson:
        return False


def timed(side: Any, programs: list[Program]) -> float:
    """Programs per second; the verdicts must be right."""
    started = time.perf_counter()
    verdicts = side(programs)
    seconds = time.perf_counter() - started
    assert verdicts == [one.right for one in programs], f"{side.__name__} judged wrong"
    return len(programs) / seconds


def breakdown(count: int) -> dict[str, float]:
    """Milliseconds of one test alone in a warm sandbox, and of its parts, as medians."""
    box = cage.Cage(profile.PLAIN)
    marks: dict[str, list[float]] = {}

    def book(part: str, seconds: float) -> None:
        marks.setdefault(part, []).append(seconds * 1000)

    def tests(source: str, part: str) -> None:
        for number in range(count):
            started = time.perf_counter()
            ended = box.run({"mode": "program", "source": f"# {number}\n{source}"}, b"", LIMITS)
            book(part, time.perf_counter() - started)
            book(f"{part}: CPU of its process", ended.cpu_seconds)

    try:
        tests("", "empty program")
        tests("import os\nos._exit(0)", "leaves at once")
        for _ in range(count):
            started = time.perf_counter()
            fds = [launch.memfd("a", b"x" * 500), launch.memfd("b", b""), *os.pipe(), *os.pipe()]
            book("descriptors", time.perf_counter() - started)
            for fd in fds:
                os.close(fd)
            started = time.perf_counter()
            with run._quiet(False):
                pass
            book("locks", time.perf_counter() - started)
    finally:
        box.close()
    started = time.perf_counter()
    cage.Cage(profile.PLAIN).close()
    book("start of a sandbox", time.perf_counter() - started)
    return {part: statistics.median(values) for part, values in marks.items()}


def line(metric: str, value: float, peer: float | None, name: str | None, unit: str) -> None:
    """Print one figure."""
    ratio = round(value / peer, 2) if peer else None
    figures = {"bench": "verify_code", "metric": metric, "ours": round(value, 3)}
    peer = round(peer, 3) if peer else None
    print(json.dumps({**figures, "peer": peer, "peer_name": name, "ratio": ratio, "unit": unit}))


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", type=int, default=300)
    options = parser.parse_args()
    works, why = run.availability()
    if not works:
        sys.exit(why)
    programs = [program(number) for number in range(options.rounds * options.programs)]
    warm = [program(number) for number in range(10**6, 10**6 + 20)]
    timed(ours, warm), timed(fresh, warm[:4])
    rates: dict[str, list[float]] = {"ours": [], "fresh": []}
    for first in range(0, len(programs), options.programs):
        part = programs[first : first + options.programs]
        rates["ours"].append(timed(ours, part))
        rates["fresh"].append(timed(fresh, part[: max(20, len(part) // 4)]))
    mine, peer = (statistics.median(rates[side]) for side in ("ours", "fresh"))
    line("code_candidates_per_s", mine, peer, "fresh bwrap + python per test", "1/s")
    parts = breakdown(options.programs)
    line("code_sandbox_ms", parts.pop("empty program"), None, None, "ms")
    for part, value in parts.items():
        line(f"code_sandbox_ms/{part}", value, None, None, "ms")


if __name__ == "__main__":
    main()
