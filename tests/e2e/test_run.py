"""The run as its users see it: complete, resumed after kill -9, refused, under attack."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from data_contracts import generate as traces_contract
from data_contracts.ids import model_slug
from infra.storage import RunLayout, Store, commit_table, read_manifest, read_table
from tasks.generate.stage import read_plan

pytestmark = pytest.mark.timeout(1800)

CONFIGS = ("full", "sft_verified", "sft_unverified", "rl")
LOAD = """
import json, sys
from datasets import load_dataset
rows = {c: load_dataset(sys.argv[1], c)["train"].num_rows for c in sys.argv[2:]}
print(json.dumps(rows))
"""


def funnel_of(root: Path, run_id: str) -> dict:
    return json.loads((root / "runs" / run_id / "funnel.json").read_text())


def published(root: Path) -> Path:
    latest = json.loads((root / "published" / "tracemill-smoke" / "_LATEST.json").read_text())
    return root / "published" / "tracemill-smoke" / latest["version"]


def parquet_files(root: Path) -> dict[str, bytes]:
    base = published(root)
    return {str(p.relative_to(base)): p.read_bytes() for p in sorted(base.rglob("*.parquet"))}


def test_a_run_is_complete_and_every_row_is_accounted_for(undisturbed):
    funnel = funnel_of(undisturbed, "calm")
    assert funnel["complete"] and not funnel["missing"] and not funnel["problems"]
    totals = {row["stage"]: row for row in funnel["totals"]}
    assert totals["collect"]["rows_out"] == 26
    # 26 tasks x 2 annotators x 2 samples, and the teacher once for each task.
    assert totals["generate"]["rows_out"] == 26 * 5
    assert totals["validate"]["rows_in"] == totals["validate"]["rows_out"] == 26 * 5
    assert totals["publish"]["rows_out"] == 26 * 5
    scored = [row for row in funnel["solve"] if row["right"] + row["wrong"]]
    assert sum(row["right"] for row in scored) > 0
    assert sum(row["wrong"] for row in scored) > 0


def test_datasets_opens_each_config_offline(undisturbed, tmp_path):
    env = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HOME": str(tmp_path),
    }
    command = [sys.executable, "-c", LOAD, str(published(undisturbed)), *CONFIGS]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert rows["full"] == 130
    assert rows["sft_unverified"] == 26
    assert rows["rl"] == 26
    assert 0 < rows["sft_verified"] < 26


def test_the_report_is_one_page_that_loads_nothing(undisturbed):
    page = (undisturbed / "runs" / "calm" / "report" / "index.html").read_text()
    assert "Content-Security-Policy" in page
    assert 'src="http' not in page and "<script" not in page


def test_status_and_a_second_start_change_nothing(undisturbed, cli):
    cli.root = undisturbed
    before = parquet_files(undisturbed)
    done = cli("status", "calm", "--root", str(undisturbed), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["complete"]
    started = time.time()
    done = cli.run("calm")
    assert done.returncode == 0, done.stderr
    assert parquet_files(undisturbed) == before
    rewritten = [
        path
        for path in (undisturbed / "runs" / "calm").rglob("*.parquet")
        if path.stat().st_mtime > started
    ]
    assert rewritten == []


def test_the_same_id_with_another_config_is_refused(undisturbed, cli):
    cli.root = undisturbed
    done = cli.run("calm", "generate.teacher.sampling.temperature=0.7")
    assert done.returncode == 2
    assert "generate.teacher.sampling.temperature: 0.6 -> 0.7" in done.stderr
    assert "Traceback" not in done.stderr


def committed(root: Path, run_id: str, kind: str) -> list[Path]:
    return sorted((root / "runs" / run_id / kind).rglob("*.json"))


def test_kill_9_of_the_flow_and_of_a_node_costs_only_what_was_not_committed(cli, undisturbed):
    process = cli.start(*cli.run_arguments("shaken"))
    deadline = time.monotonic() + 900
    while len(committed(cli.root, "shaken", "traces")) < 2:
        assert process.poll() is None, cli.output()
        assert time.monotonic() < deadline, "nothing was generated"
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = {path: path.stat().st_mtime_ns for path in committed(cli.root, "shaken", "traces")}
    planned = len(
        {s.shard_id for s in read_plan(Store(str(cli.root)), RunLayout("shaken"), "annotators")}
    )
    assert 2 <= len(kept) < planned, "killed too late to show anything"

    process = cli.start(*cli.run_arguments("shaken"))
    while not (nodes := _nodes_of(process.pid)):
        assert process.poll() is None, cli.output()
        time.sleep(0.05)
    nodes[0].kill()
    assert process.wait(280) == 0, cli.output()
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert parquet_files(cli.root) == parquet_files(undisturbed)
    assert published(cli.root).name == published(undisturbed).name


def test_kill_9_leaves_no_process_behind(cli):
    process = cli.start(*cli.run_arguments("gone"))
    deadline = time.monotonic() + 900
    while not _nodes_of(process.pid):
        assert process.poll() is None, cli.output()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    family = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(family) > 2
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []


def _nodes_of(pid: int) -> list[psutil.Process]:
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # others of the family come and go
                if "tasks.provision.worker" in child.cmdline():
                    found.append(child)
    return found


def test_forged_traces_are_rejected_and_show_in_the_funnel(cli, undisturbed):
    """The run of a pool with liars: their traces are committed, then the run goes on."""
    shutil.copytree(undisturbed, cli.root)
    shutil.rmtree(cli.root / "published")
    run_dir = cli.root / "runs" / "calm"
    for done in ("verdicts", "rewards", "difficulty", "published.json"):
        path = run_dir / done
        path.unlink() if path.is_file() else shutil.rmtree(path)
    store, layout = Store(str(cli.root)), RunLayout("calm")
    shard = read_plan(store, layout, "annotators")[0]
    path = layout.traces(model_slug(shard.model), shard.shard_id)
    info = read_manifest(store, path).info
    rows = read_table(store, path).to_pylist()
    long = [row for row in rows if len(row["output_ids"]) > 8]
    middle, last, foreign, missing, short = long[:5]
    middle["output_ids"][4] = middle["output_ids"][4] % 200 + 1
    last["output_ids"][-2] = last["output_ids"][-2] % 200 + 1
    foreign["proofs"] = long[6]["proofs"]
    missing["proofs"] = b""
    for column in ("output_ids", "logprobs"):
        short[column] = short[column][:5]
    short["proofs"] = short["proofs"][:258]
    store.delete(f"{path}.json")
    store.delete(f"{path}.parquet")
    table = pa.Table.from_pylist(rows, schema=traces_contract.SCHEMA)
    commit_table(store, path, table, schema=traces_contract.SCHEMA, producer="liar", info=info)

    done = cli.run("calm")
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = {
        row["trace_id"]: row
        for row in read_table(
            store, layout.verdicts(model_slug(shard.model), shard.shard_id)
        ).to_pylist()
    }
    forged = [middle, last, foreign, missing, short]
    assert [verdicts[row["trace_id"]]["verdict"] for row in forged] == ["rejected"] * 5
    for row in forged:
        # Changed after signing, whatever else is wrong with it; so it is not held against its node.
        reasons = verdicts[row["trace_id"]]["reasons"]
        assert any(reason.startswith("transcript_mismatch") for reason in reasons)
    assert verdicts[missing["trace_id"]]["reasons"][0] == "proof_missing"
    honest = verdicts.keys() - {row["trace_id"] for row in forged}
    assert {verdicts[trace]["verdict"] for trace in honest} == {"accepted"}
    row = next(
        row
        for row in funnel_of(cli.root, "calm")["stages"]
        if row["stage"] == "validate" and row["model"] == shard.model
    )
    assert row["rejected"] == 5
    assert row["reasons"]["rejected:proof_missing"] == 1
    assert row["rows_in"] == row["rows_out"] + 5
    assert "rejected" in done.stdout
