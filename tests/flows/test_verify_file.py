"""`tracemill verify`: one result per row whatever the rows hold; outputs are whole or absent."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.verify_file import _result, _sink
from flows.verify_rows import Row, read_rows
from flows.verify_summary import UNKNOWN, Summary
from verifiers import Score, sandbox

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "verifiers" / "data" / "verifier_cases.jsonl"
runner = CliRunner()

GOOD = {
    "id": "good",
    "task_type": "reverse_text",
    "completion": "<answer>cba</answer>",
    "verification_info": {"ground_truth": "cba"},
}
BAD_LINES = {
    "{not json": "line 2 is not JSON",
    "[1, 2]": "line 3 is not a JSON object",
    '{"task_type": "reverse_text", "completion": "x"}': "no verification_info",
    '{"task_type": "poetry", "completion": "x", "verification_info": {}}': "unknown task_type",
    '{"task_type": ["x"], "completion": "x", "verification_info": {}}': "unknown task_type",
    '{"task_type": "reverse_text", "completion": 7, "verification_info": {}}': "must be text",
    '{"task_type": "ifeval", "completion": "x", "verification_info": "{"}': "not JSON",
    "[" * 100_000: "is not JSON",
    "9" * 5000: "is not JSON",
}


def _verify(*arguments, **more):
    done = runner.invoke(app, ["verify", *map(str, arguments), "--workers", "1"], **more)
    assert "Traceback" not in done.output
    return done


def _write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_bad_rows_are_results_and_end_nothing(tmp_path):
    source, target = tmp_path / "rows.jsonl", tmp_path / "scores.jsonl"
    lines = [json.dumps(GOOD), *BAD_LINES, "", json.dumps({**GOOD, "id": "last \ud83d"})]
    source.write_text("\n".join(lines))
    done = _verify(source, "-o", target, "--json")
    assert done.exit_code == 0, done.output
    first, *bad, last = _read(target)
    assert (first["id"], first["score"], last["id"], last["score"]) == ("good", 1, "last \ud83d", 1)
    for result, why in zip(bad, BAD_LINES.values(), strict=True):
        assert (result["score"], result["status"]) == (None, "unverifiable")
        assert why in result["detail"]
    assert [result["id"] for result in bad] == list(range(2, 2 + len(bad)))
    summary = json.loads(done.stdout)
    assert (summary["rows"], summary["scored"], summary["full_score"]) == (len(bad) + 2, 2, 2)
    assert summary["task_types"]["reverse_text"]["statuses"] == {"ok": 2, "unverifiable": 1}
    assert summary["task_types"]["reverse_text"]["mean_score"] == 1.0
    assert sum(summary["task_types"][UNKNOWN]["statuses"].values()) == len(bad) - 2


@pytest.mark.slow
def test_the_handed_cases_and_bad_rows(tmp_path):
    if not sandbox.availability()[0]:
        pytest.skip("no sandbox here")
    slow = ("code-h09", "code-h15")  # they take their whole time limit
    cases = [row for row in _read(CASES) if row["id"] not in slow]
    assert len(cases) == 94
    source = _write(tmp_path / "rows.jsonl", cases)
    with source.open("a") as file:
        file.write("".join(f"{line}\n" for line in BAD_LINES))
    target = tmp_path / "scores.parquet"
    done = runner.invoke(app, ["verify", str(source), "-o", str(target), "--workers", "2"])
    assert done.exit_code == 0, done.output
    assert pq.read_schema(target).names == "id score status verifier detail seconds".split()
    results = pq.read_table(target).to_pylist()
    assert len(results) == len(cases) + len(BAD_LINES)
    for case, result in zip(cases, results, strict=False):
        assert result["id"] == case["id"]
        low, high = case["expect"].get("score_between", [case["expect"].get("score")] * 2)
        if low is None:
            assert result["score"] is None
        else:
            assert low - 1e-6 <= result["score"] <= high + 1e-6, case["id"]
    assert {result["score"] for result in results[len(cases) :]} == {None}


def test_parquet_in_and_json_on_stdout(tmp_path):
    rows = [{**GOOD, "verification_info": json.dumps(GOOD["verification_info"]), "other": 1}] * 3
    source = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows), source)
    done = _verify(source, "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert [result["score"] for result in printed["results"]] == [1, 1, 1]
    assert printed["task_types"]["reverse_text"]["rows"] == 3


def test_stdin_and_lines_on_stdout():
    done = _verify("-", input=json.dumps(GOOD) + "\n")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["score"] == 1.0
    assert "1 rows, 1 scored, 1 with score 1" in done.stderr


def test_an_empty_file_is_no_error(tmp_path):
    source = _write(tmp_path / "rows.jsonl", [])
    done = _verify(source, "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["results"] == []


def test_columns_that_a_parquet_file_lacks_are_named(tmp_path):
    source, target = tmp_path / "rows.parquet", tmp_path / "out.jsonl"
    pq.write_table(pa.table({"task_type": ["x"], "text": ["y"]}), source)
    done = _verify(source, "-o", target)
    assert done.exit_code == 2
    for word in ("no column completion, verification_info", "found task_type, text"):
        assert word in done.stderr.replace("\n", " ")
    assert sorted(tmp_path.iterdir()) == [source]


def test_a_finished_output_is_replaced_as_a_whole(tmp_path):
    source, target = _write(tmp_path / "rows.jsonl", [GOOD]), tmp_path / "out.jsonl"
    target.write_text("old")
    assert _verify(source, "-o", target).exit_code == 0
    assert len(_read(target)) == 1
    assert sorted(tmp_path.iterdir()) == [target, source]


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_scored(tmp_path):
    # Quadratic work of many seconds stands behind the quick rows.
    slow = {**GOOD, "completion": f"<answer>{'ab' * 40_000}</answer>"}
    slow["verification_info"] = {"ground_truth": "ba" * 40_000}
    source, target = _write(tmp_path / "rows.jsonl", [GOOD] * 40 + [slow] * 400), tmp_path / "out"
    target.write_text("old")
    partial = tmp_path / "out.partial"
    with (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "verify", source, "-o", target, "--workers", "1"],
            stderr=err,
            cwd=ROOT,
        )
    deadline = time.monotonic() + 240
    while not (partial.exists() and partial.read_bytes().count(b"\n") >= 40):
        assert process.poll() is None and time.monotonic() < deadline, (
            tmp_path / "err"
        ).read_text()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 1
    said = (tmp_path / "err").read_text()
    assert "interrupted" in said and str(partial) in said and "Traceback" not in said
    assert target.read_text() == "old"
    assert len(_read(partial)) >= 40


def test_an_interrupted_parquet_output_can_be_read(tmp_path):
    target = tmp_path / "out.parquet"
    summary = Summary()
    score = Score(1.0, "ok", "x@1", "", "", 0.1, True)
    with pytest.raises(KeyboardInterrupt), _sink(target, False, summary) as write:
        for number in range(3):
            write(_result(Row(number, {}), score))
            summary.add("reverse_text", score)
        raise KeyboardInterrupt
    assert not target.exists()
    assert pq.read_table(tmp_path / "out.parquet.partial")["id"].to_pylist() == ["0", "1", "2"]


def test_ids_are_kept_or_counted(tmp_path):
    rows = [{**GOOD, "id": given} for given in ("a", 7, 1.5, None)] + [{**GOOD}]
    del rows[-1]["id"]
    source = _write(tmp_path / "rows.jsonl", rows)
    assert [row.id for row in read_rows(source)] == ["a", 7, "1.5", 4, 5]


def test_the_summary_is_bounded_and_prints_no_control_characters():
    summary = Summary()
    for number in range(5000):
        detail = f"\x1b[31m{number}\n"
        summary.add(f"type {number}", Score(None, "unverifiable", "none@0", "", detail, 0.0, False))
    summary.add("ifeval", Score(0.5, "ok", "ifeval@1", "", "", 0.0, True))
    whole = summary.to_json()
    assert whole["task_types"].keys() == {UNKNOWN, "ifeval"}
    assert whole["unscored"] == 5000
    assert len(summary.reasons[UNKNOWN]) <= 1000
    assert "\x1b" not in "".join(
        cell for table in summary.tables() for r in table.rows for cell in r
    )
