"""R3: `prime_rl_code`, a program against its tests, in the sandbox.

The expected outputs stay in this process; the verdict is a comparison of plain data here.
"""

from dataclasses import dataclass
from typing import Any

from verifiers import extract, strict_json
from verifiers.errors import RowFault, SandboxBroken, VerifierFault
from verifiers.kinds.base import Info, Kind, text_of
from verifiers.result import Outcome, crashed, judged, no_answer, timed_out
from verifiers.sandbox import cage, profile, run, weak
from verifiers.sandbox.cage import Ended, Limits

LIMITS = Limits()
MAX_TESTS = 1000
"""A row with more tests would hold a worker for hours: it is refused as a whole."""
CPU_BUDGET = 60.0
"""Seconds of CPU for all tests of an answer together; a single slow test may be fine, many not."""
WALL_BUDGET = 120.0
"""The same in wall time, for programs that sleep."""
RESULT_BYTES, RESULT_RATIO = 64 << 10, 64
"""A result of more than so many bytes, plus so many for each character expected, is wrong unread:
escapes and long forms of numbers do not make an equal value that much longer."""


@dataclass
class Budget:
    """What the tests of one answer have used so far."""

    cpu: float = 0.0
    wall: float = 0.0

    def run(self, job: dict[str, object], stdin: bytes) -> Ended:
        """Run one test and book its time."""
        ended = run.run_job(profile.PLAIN, job, stdin, LIMITS)
        self.cpu += ended.cpu_seconds
        # On a starved machine a test may run longer than its limit; that is not the answer's doing.
        self.wall += min(ended.wall_seconds, LIMITS.wall_seconds)
        return ended

    def passed(self, where: str) -> Outcome | None:
        """The outcome of an answer that used more than all of its tests may."""
        if self.cpu <= CPU_BUDGET and self.wall <= WALL_BUDGET:
            return None
        return timed_out(
            f"{where}: all tests so far took {self.cpu:.1f} s of CPU and {self.wall:.1f} s of wall "
            f"time; together they may take {CPU_BUDGET:g} s and {WALL_BUDGET:g} s"
        )


def read_tests(info: Info) -> tuple[list[str], list[str], str | None]:
    """(inputs, outputs, fn_name) of the row; RowFault when the row makes no sense."""
    try:
        tests = strict_json.loads(text_of(info, "test_cases"))
    except strict_json.InvalidJson as error:
        raise RowFault(f"test_cases is not JSON: {error}") from error
    if not isinstance(tests, dict):
        raise RowFault("test_cases must be an object with inputs and outputs")
    inputs, outputs, name = tests.get("inputs"), tests.get("outputs"), tests.get("fn_name")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not inputs:
        raise RowFault("test_cases needs the lists inputs and outputs, with at least one test")
    if len(inputs) > MAX_TESTS:
        raise RowFault(f"test_cases has {len(inputs)} tests; at most {MAX_TESTS} are run")
    if len(inputs) != len(outputs):
        raise RowFault(f"test_cases has {len(inputs)} inputs and {len(outputs)} outputs")
    if not all(isinstance(text, str) for text in [*inputs, *outputs]):
        raise RowFault("test_cases must hold inputs and outputs as texts")
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise RowFault(f"fn_name must be a plain name, got {name!r:.60}")
    return inputs, outputs, name


def _json(text: str, what: str) -> Any:
    try:
        return strict_json.loads(text)
    except strict_json.InvalidJson as error:
        raise RowFault(f"a test's {what} is not JSON: {error}") from error


def same_output(got: bytes, expected: str) -> bool:
    """Equality apart from white space at the ends of lines and of the whole text."""
    try:
        text = got.decode("utf-8")
    except UnicodeDecodeError:
        return False

    text, expected = text.rstrip(), expected.rstrip()
    if text.count("\n") != expected.count("\n"):  # a flood of lines is not worth a list
        return False
    pairs = zip(text.split("\n"), expected.split("\n"), strict=True)
    return all(ours.rstrip() == theirs.rstrip() for ours, theirs in pairs)


def failure(ended: Ended, where: str) -> Outcome | None:
    """The outcome of a program that passed a limit."""
    if ended.starved:
        raise VerifierFault(f"{where}: the machine gave the program no CPU, twice")
    if ended.out_of_time:
        return timed_out(
            f"{where}: over {LIMITS.cpu_seconds} s of CPU or {LIMITS.wall_seconds:g} s of wall time"
        )
    if ended.out_of_output:
        return crashed(
            f"{where}: more than {LIMITS.output_bytes >> 20} MiB of output or {cage.FILES} files"
        )
    return None


def _last_words(ended: Ended) -> str:
    lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else f"exit status {ended.exit_code}"


def program_test(
    budget: Budget, source: str, stdin: str, expected: str, where: str
) -> Outcome | None:
    """Run one test of a stdin program; None when it passes."""
    data = stdin.encode("utf-8", "surrogatepass")
    ended = budget.run({"mode": "program", "source": source}, data)
    if (failed := failure(ended, where)) is not None:
        return failed
    if same_output(ended.stdout, expected):
        return None
    if ended.exit_code != 0:
        return crashed(f"{where}: {_last_words(ended)}")
    return judged(0, f"{where}: wrong output")


def result_of(ended: Ended, nonce: str, most: int) -> dict[str, Any] | None:
    """The one frame, of at most so many bytes, that the harness wrote; else None."""
    mark = nonce.encode()
    if not 2 * len(mark) <= len(ended.result) <= most:
        return None
    if not (ended.result.startswith(mark) and ended.result.endswith(mark)):
        return None
    try:
        value = strict_json.loads(ended.result[len(mark) : -len(mark)].decode("ascii"))
    except (strict_json.InvalidJson, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else None


def call_test(
    budget: Budget, source: str, name: str, args: str, output: str, where: str
) -> Outcome | None:
    """Run one call; `args` is a JSON list, `output` JSON; None when it passes."""
    nonce = run.new_nonce()
    job: dict[str, object] = {
        "mode": "call",
        "source": source,
        "fn_name": name,
        "args": args,
        "nonce": nonce,
    }
    ended = budget.run(job, b"")
    if (failed := failure(ended, where)) is not None:
        return failed
    result = result_of(ended, nonce, RESULT_BYTES + RESULT_RATIO * len(output))
    if result is None:
        return crashed(f"{where}: no result, or too long a one; {_last_words(ended)}")
    if "value" not in result:
        return judged(0, f"{where}: {result.get('error')}")
    if not strict_json.deep_equal(result["value"], _json(output, "output")):
        return judged(0, f"{where}: wrong result")
    return None


def _judge(answer: str, info: Info) -> Outcome:
    inputs, outputs, name = read_tests(info)
    calls = []
    if name is not None:
        for text, expected in zip(inputs, outputs, strict=True):
            lines = [line for line in text.split("\n") if line.strip()]
            for line in lines:
                _json(line, "input")
            _json(expected, "output")
            calls.append((f"[{','.join(lines)}]", expected))
    source = extract.last_block(answer, "python")
    if source is None:
        return no_answer("no fenced block marked python")
    budget = Budget()
    try:
        for number in range(len(inputs)):
            where = f"test {number + 1} of {len(inputs)}"
            if name is None:
                failed = program_test(budget, source, inputs[number], outputs[number], where)
            else:
                failed = call_test(budget, source, name, *calls[number], where)
            if failed is None:
                failed = budget.passed(where)
            if failed is not None:
                return failed
    except SandboxBroken as error:
        raise VerifierFault(str(error)) from error
    return judged(1, f"{len(inputs)} tests passed")


_ADD = '{"inputs": ["1\\n2"], "outputs": ["3"], "fn_name": "add"}'
KIND = Kind(
    name="code",
    version=1,
    task_types=("prime_rl_code",),
    binary=True,
    judge=_judge,
    self_limiting=True,
    missing=lambda: run.availability()[1],
    settings={
        "cpu_seconds": cage.CPU_SECONDS,
        "wall_seconds": cage.WALL_SECONDS,
        "memory": cage.MEMORY_BYTES,
        "scratch": profile.SCRATCH_BYTES,
        "threads": cage.THREADS,
        "output": cage.OUTPUT_BYTES,
        "files": cage.FILES,
        "weak_sandbox": weak.allowed(),
        "max_tests": MAX_TESTS,
        "cpu_budget": CPU_BUDGET,
        "wall_budget": WALL_BUDGET,
    },
    self_tests=(
        ("```python\ndef add(a, b):\n    return a + b\n```", {"test_cases": _ADD}, 1.0),
        ("```python\ndef add(a, b):\n    return a - b\n```", {"test_cases": _ADD}, 0.0),
        ("no code", {"test_cases": _ADD}, 0.0),
        ("", {"test_cases": "{"}, None),
    ),
)
