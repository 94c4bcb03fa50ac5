"""A kind that judges wrongly in its process is refused: null with the reason, and no start."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import verifiers
from verifiers import health, host, registry
from verifiers.errors import BrokenVerifier, WorkerLost
from verifiers.mathlib import compare
from verifiers.result import Outcome, judged, unverifiable

ROOT = Path(__file__).resolve().parents[2]
MATH = ("verifiable_math", "\\boxed{\\sqrt{4}}", {"ground_truth": 2})
GERMAN = ("ifeval", "klein", {"ground_truth": {"func_name": "validate_lowercase"}})


@pytest.fixture
def fresh(monkeypatch) -> None:
    """Forget what this process found out about its kinds."""
    monkeypatch.setattr(health, "_faults", {})


NO_VERDICT_OF_ITS_OWN = {"null_reward", "environment"}


@pytest.mark.parametrize("constant", [judged(1), judged(0), unverifiable("never")], ids=str)
@pytest.mark.parametrize("kind", registry.KINDS, ids=lambda kind: kind.name)
def test_examples_tell_a_judge_from_a_constant(kind, constant, fresh) -> None:
    if kind.name not in NO_VERDICT_OF_ITS_OWN:
        broken = replace(kind, judge=lambda answer, info: constant, missing=lambda: "")
        assert f"{kind.name} is broken here" in health.fault(broken)


def test_rows_of_a_broken_kind_are_null(monkeypatch, fresh) -> None:
    monkeypatch.setattr(compare, "equal", lambda truth, answer: True)
    got = registry.judge_row(*MATH)
    assert (got.score, got.status) == (None, "verifier_error")
    assert "is broken here" in got.detail
    assert registry.judge_row(*GERMAN).score == 1


def test_no_start_with_a_broken_kind(monkeypatch, fresh) -> None:
    kind = registry.kind_of("ifeval")
    monkeypatch.setitem(
        registry._BY_TYPE, "ifeval", replace(kind, judge=lambda answer, info: judged(1))
    )
    with pytest.raises(BrokenVerifier, match="ifeval"):
        verifiers.refuse_broken(["verifiable_math", "ifeval"])
    verifiers.refuse_broken(["verifiable_math", "no such type"])


def test_what_a_machine_lacks_is_not_broken(monkeypatch, fresh) -> None:
    def judge(answer: str, info: object) -> Outcome:
        raise verifiers.errors.VerifierFault("no such thing here")

    kind = replace(registry.kind_of("ifeval"), judge=judge, missing=lambda: "a thing")
    assert health.fault(kind) == ""
    assert "a thing" not in health.fault(replace(kind, name="other", missing=lambda: ""))
    assert health.fault(replace(kind, name="boxed", self_limiting=True, missing=lambda: "")) == ""


def test_a_language_detector_without_its_seed(monkeypatch, fresh) -> None:
    from langdetect.detector import Detector

    made = Detector.__init__

    def unseeded(self, factory) -> None:
        made(self, factory)
        self.seed = None

    monkeypatch.setattr(Detector, "__init__", unseeded)
    got = registry.judge_row(*GERMAN)
    assert (got.score, got.status) == (None, "verifier_error")
    assert "seed" in got.detail


def python(code: str, *paths: object, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*map(str, paths), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_another_antlr_runtime(tmp_path) -> None:
    """The grammar of another version is loaded: nothing parses, which must not score 0."""
    info = tmp_path / "antlr4_python3_runtime-4.9.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: antlr4-python3-runtime\nVersion: 4.9.3\n")
    code = f"""
import verifiers
from verifiers.registry import judge_row
got = judge_row(*{MATH})
print([got.score, got.status, got.detail])
verifiers.refuse_broken(["verifiable_math"])
"""
    done = python(code, tmp_path)
    assert done.stdout.startswith("[None, 'verifier_error', "), done
    assert "math is broken here" in done.stdout
    assert done.returncode == 1 and "BrokenVerifier: refusing to score" in done.stderr


@pytest.mark.parametrize("seed", ["random", "5"])
def test_a_worker_with_other_hashes_does_not_start(seed) -> None:
    done = python("from verifiers.worker import main; main(0)", PYTHONHASHSEED=seed)
    assert done.returncode == 1 and "PYTHONHASHSEED=0" in done.stderr


def test_no_rows_without_a_worker(monkeypatch) -> None:
    monkeypatch.setattr(host, "_ENVIRONMENT", {**host._ENVIRONMENT, "PYTHONHASHSEED": "5"})
    template = host.Template()
    with pytest.raises(WorkerLost):
        template.fork_worker()
    template.close()


def test_verdicts_do_not_depend_on_hashes() -> None:
    table = Path(__file__).parent / "data" / "math_table.jsonl"
    code = f"""
import json
from verifiers.registry import judge_row
for line in list(open({str(table)!r}))[::3]:
    row = json.loads(line)
    answer, info = "\\\\boxed{{%s}}" % row["boxed"], {{"ground_truth": row["truth"]}}
    got = judge_row("verifiable_math", answer, info)
    print(json.dumps([got.score, got.status, got.detail]))
"""
    one, two = (python(code, PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert one.returncode == 0, one.stderr
    assert one.stdout == two.stdout
    assert len([json.loads(line) for line in one.stdout.splitlines()]) > 50
