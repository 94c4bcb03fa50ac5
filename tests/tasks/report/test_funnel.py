"""The funnel of finished, running and damaged runs."""

import itertools
import json
import re

import pytest

from infra.storage import discard
from tasks.publish import receipt_path
from tasks.report import funnel, funnel_markdown, write_funnel, write_report
from tasks.report.errors import NoSuchRun
from tasks.report.outcomes import reason_code


def by_stage(result):
    return {(row.stage, row.model): row for row in result.stages}


def test_a_finished_run_is_complete_and_adds_up(finished):
    run, _ = finished
    result = funnel(run.store, run.layout)
    assert result.complete and result.problems == () and result.missing == ()
    rows = by_stage(result)
    assert all(row.balanced and row.state == "done" for row in result.stages)
    assert rows["collect", None].reasons == {"duplicate": 1}
    assert rows["collect", None].quarantined == 1
    for model in (*run.ANNOTATORS, run.TEACHER):
        made, judged = rows["generate", model], rows["validate", model]
        scored = rows["verify", model]
        assert made.reasons == {"ok": made.rows_out}
        assert made.rows_out == judged.rows_in
        assert judged.rows_out == scored.rows_in
        assert judged.reasons["accepted"] == judged.rows_out
        assert judged.reasons.get("rejected:proof_missing", 0) == judged.rejected
        assert scored.reasons.get("verifier_error", 0) == scored.unscored
    total = {row.stage: row for row in result.totals()}
    assert total["validate"].rejected > 0 and total["verify"].unscored > 0
    assert total["publish"].rows_in == total["verify"].rows_in == result.published.rows["full"]
    assert list(total) == ["collect", "generate", "validate", "verify", "annotate", "publish"]


def test_solve_table_adds_up(finished):
    run, _ = finished
    result = funnel(run.store, run.layout)
    assert {row.task_type for row in result.solve} == {
        "reasoning_gym",
        "reverse_text",
        "verifiable_math",
    }
    for row in result.solve:
        assert row.right + row.wrong + row.unscored == row.accepted <= row.planned
    teacher = [row for row in result.solve if row.model == run.TEACHER]
    assert sum(row.right for row in teacher) == result.published.rows["sft_verified"]
    assert sum(row.accepted for row in teacher) == result.published.rows["sft_unverified"]


def test_a_run_that_is_going_names_what_is_missing(new_run):
    run = new_run().collect().plan("annotators", ("tracemill/nano-s",), shard_size=20)
    run.generate("annotators", skip=1).validate("annotators", skip=2)
    result = funnel(run.store, run.layout)
    shards = [shard for _, shard, _ in run.shards["annotators"]]
    rows = by_stage(result)
    assert not result.complete and result.problems == ()
    assert rows["generate", "tracemill/nano-s"].missing == (shards[0],)
    assert set(rows["validate", "tracemill/nano-s"].missing) == set(shards[:2])
    assert rows["verify", "tracemill/nano-s"].state == "waiting"
    assert rows["validate", "tracemill/nano-s"].state == "partial"
    assert rows["annotate", None].state == rows["publish", None].state == "waiting"
    assert f"generate/tracemill/nano-s/{shards[0]}" in result.missing


def test_a_version_older_than_the_last_shard_is_not_complete(new_run, rate_and_publish):
    run = new_run().collect().plan("annotators", ("tracemill/nano-s", "tracemill/nano-m"))
    run.generate("annotators").validate("annotators", skip=1).verify("annotators", skip=1)
    rate_and_publish(run)
    run.validate("annotators").verify("annotators")
    result = funnel(run.store, run.layout)
    assert result.missing == () and not result.complete
    assert any("made without the rewards of 1 shards" in problem for problem in result.problems)
    rate_and_publish(run)
    result = funnel(run.store, run.layout)
    assert by_stage(result)["publish", None].balanced and not result.complete
    discard(run.store, run.layout.difficulty)
    rate_and_publish(run)
    assert funnel(run.store, run.layout).complete


@pytest.mark.parametrize(
    ("stage", "change"),
    [
        *itertools.product(("generate", "validate", "verify"), ("data", "gone", "manifest")),
        ("annotate", "data"),
        ("annotate", "gone"),
    ],
)
def test_a_damaged_shard_is_named_and_the_rest_is_shown(rated_run, rate_and_publish, stage, change):
    run = rated_run
    rate_and_publish(run)
    assert funnel(run.store, run.layout).complete
    model, shard, _ = run.shards["annotators"][0]
    key = (model.replace("/", "--"), shard)
    path = {
        "generate": run.layout.traces(*key),
        "validate": run.layout.verdicts(*key),
        "verify": run.layout.rewards(*key),
        "annotate": run.layout.difficulty,
    }[stage]
    if change == "manifest":
        run.store.write_bytes(f"{path}.json", b"{", overwrite=True)
    elif change == "gone":
        run.store.delete(f"{path}.parquet")
    else:
        data = run.store.read_bytes(f"{path}.parquet")
        run.store.write_bytes(f"{path}.parquet", data[:-9], overwrite=True)
    result = funnel(run.store, run.layout)
    assert not result.complete
    named = [problem for problem in result.problems if path in problem]
    assert len(named) == 1 and named[0].startswith(f"{stage}: ")
    if stage != "annotate":
        row = by_stage(result)[stage, model]
        assert row.missing == (shard,) and row.shards_done == row.shards_planned - 1 > 0
    assert result.published.rows["full"] > 0 and by_stage(result)["verify", run.TEACHER].balanced
    page = write_report(run.store, run.layout, result)
    assert run.store.exists(page) and run.store.exists(write_funnel(run.store, run.layout, result))


@pytest.mark.parametrize(
    ("gone", "found"),
    [
        ("README.md", r"1 files of published/made/\w+ are gone \(README.md\)"),
        ("manifest.json", "manifest.json is gone"),
    ],
)
def test_a_version_with_files_gone_is_not_complete(rated_run, rate_and_publish, gone, found):
    run = rated_run
    path = rate_and_publish(run).path
    run.store.delete(f"{path}/{gone}")
    result = funnel(run.store, run.layout)
    assert not result.complete and len(result.problems) == 1
    assert re.search(found, result.problems[0])
    assert result.published.path == path


RECEIPTS = {
    "cut": lambda receipt: "{",
    "list": lambda receipt: [],
    "empty": lambda receipt: {},
    "no path": lambda receipt: {key: receipt[key] for key in receipt if key != "path"},
    "no config": lambda receipt: receipt | {"rows": {"full": 1}},
    "text for a number": lambda receipt: receipt | {"accepted": "12"},
}


@pytest.mark.parametrize("change", RECEIPTS)
def test_a_receipt_without_its_keys_is_no_publication(rated_run, rate_and_publish, change):
    run = rated_run
    rate_and_publish(run)
    path = receipt_path(run.layout)
    changed = RECEIPTS[change](run.store.read_json(path))
    data = changed if isinstance(changed, str) else json.dumps(changed)
    run.store.write_bytes(path, data.encode(), overwrite=True)
    result = funnel(run.store, run.layout)
    assert not result.complete and result.published is None
    assert by_stage(result)["publish", None].state == "waiting"
    assert len(result.problems) == 1 and path in result.problems[0]


def test_a_receipt_that_names_no_version_is_a_problem(rated_run, rate_and_publish):
    run = rated_run
    rate_and_publish(run)
    path = receipt_path(run.layout)
    receipt = run.store.read_json(path)
    run.store.write_json(path, receipt | {"path": "../elsewhere"}, overwrite=True)
    result = funnel(run.store, run.layout)
    assert not result.complete and "../elsewhere" in result.problems[0]
    run.store.write_json(path, receipt, overwrite=True)
    run.store.write_json(f"{receipt['path']}/manifest.json", {}, overwrite=True)
    result = funnel(run.store, run.layout)
    assert not result.complete and "wrong keys (files)" in result.problems[0]


def test_lost_rows_are_a_problem(new_run):
    run = new_run().collect().plan("annotators", ("tracemill/nano-s",)).generate("annotators")
    run.validate("annotators").verify("annotators", reject=0.5)
    result = funnel(run.store, run.layout)
    assert any("validate accepted" in problem for problem in result.problems)


@pytest.mark.parametrize("root", ["memory://funnel", None])
def test_funnel_json_is_deterministic(new_run, root):
    run = new_run("run-7", root).collect().stages("annotators", ("tracemill/nano-s",))
    path = write_funnel(run.store, run.layout, funnel(run.store, run.layout))
    first = run.store.read_bytes(path)
    write_funnel(run.store, run.layout, funnel(run.store, run.layout))
    assert run.store.read_bytes(path) == first
    assert json.loads(first)["run_id"] == "run-7"


def test_only_collected(new_run):
    run = new_run().collect()
    result = funnel(run.store, run.layout)
    assert [row.stage for row in result.stages] == ["collect", "annotate", "publish"]
    assert result.solve == ()


def test_unknown_run_names_those_that_exist(new_run):
    new_run("other").collect()
    with pytest.raises(NoSuchRun, match="runs there: other"):
        run = new_run("nope")
        funnel(run.store, run.layout)


def test_markdown_escapes_reasons(finished):
    run, _ = finished
    text = funnel_markdown(funnel(run.store, run.layout))
    assert "### Funnel of run\\-1" in text or "### Funnel of run-1" in text
    assert "rejected:proof\\_missing" in text
    assert "| sft\\_verified |" in text


@pytest.mark.parametrize(
    ("reason", "code"),
    [("proof_missing: 0 of 1", "proof_missing"), ("", "no_reason"), ("x" * 99, "x" * 60)],
)
def test_reason_code(reason, code):
    assert reason_code(reason) == code
