import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "verifiers" / "data" / "verifier_cases.jsonl"
runner = CliRunner()


@pytest.mark.parametrize(
    "command", ["plan", "run", "status", "report", "doctor", "verify", "proof", "up", "down"]
)
def test_every_command_explains_itself(command):
    done = runner.invoke(app, [command, "--help"])
    assert done.exit_code == 0
    assert "Usage" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--profile", "nope"], "profile 'nope' does not exist"),
        (["plan", "--set", "sed=1"], "did you mean 'seed'"),
        (["run", "--run-id", "../x", "--profile", "smoke"], "run id '../x'"),
        (["status", "never-was"], "does not exist"),
        (["verify", "no-such.jsonl"], "does not exist"),
        (["run", "--nonsense"], "No such option"),
        (["plan", "--set", "[/red].x=3"], "[/red]: unknown key"),
        (["plan", "--set", "generate.annotators.²=2"], "is not one of its positions"),
        (["verify", "EMPTY.parquet"], "not readable as parquet"),
        (["verify", "ROWS.jsonl", "-o", "ROWS.jsonl"], "is the input itself"),
        (["verify", "ROWS.jsonl", "-o", "no/such/dir/x"], "cannot be written"),
        (["verify", "ROWS.jsonl", "--workers", "-1"], "--workers"),
        (
            ["plan", "--profile", "smoke", "--set", 'generate.teacher.model="tracemill/nano-x"'],
            "nano-",
        ),
    ],
)
def test_bad_usage_ends_with_code_2_and_says_what_to_do(arguments, message, tmp_path):
    (tmp_path / "EMPTY.parquet").touch()
    (tmp_path / "ROWS.jsonl").write_text("")
    arguments = [
        str(tmp_path / part) if part.startswith(("EMPTY", "ROWS", "no/")) else part
        for part in arguments
    ]
    if arguments[0] == "status":
        arguments = [*arguments, "--root", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_plan_counts_without_starting_anything(tmp_path):
    done = runner.invoke(
        app,
        ["plan", "--profile", "smoke", "--set", f"storage.root={tmp_path}", "--json"],
    )
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert plan["tasks"] == sum(plan["tasks_by_type"].values()) == 26
    assert [model["traces"] for model in plan["models"]] == [52, 52, 26]
    assert all(model["shards"] and model["prompt_tokens"] for model in plan["models"])
    assert list(tmp_path.iterdir()) == []


def test_verify_scores_a_file_row_by_row(tmp_path):
    rows = [json.loads(line) for line in CASES.read_text().splitlines()]
    chosen = [row for row in rows if row["task_type"] in ("reverse_text", "formatask", "ifeval")]
    source, target = tmp_path / "rows.jsonl", tmp_path / "scores.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in chosen))
    done = runner.invoke(app, ["verify", str(source), "-o", str(target), "--workers", "1"])
    assert done.exit_code == 0, done.output
    results = [json.loads(line) for line in target.read_text().splitlines()]
    assert [result["id"] for result in results] == [row["id"] for row in chosen]
    for row, result in zip(chosen, results, strict=True):
        expected = row["expect"]["score"]
        assert result["score"] == (
            None if expected is None else pytest.approx(expected, abs=1e-6)
        ), row["id"]


def test_doctor_reports_every_part():
    done = runner.invoke(app, ["doctor", "--json"])
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert {"python", "torch", "sandbox", "verifiers", "tracemill/nano-s", "disk"} <= set(checks)
    assert all(check["detail"] for check in checks.values())
