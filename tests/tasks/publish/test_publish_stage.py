"""What a version holds."""

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_contracts import publish as contract
from tasks.publish import CONFIGS, latest
from tasks.publish.errors import NothingToPublish, RowsDoNotAddUp

PRIVATE = ("secret-node", "seconds", "node_id", "group_id", "run-1", "2026")


def read(run, path):
    return pq.read_table(pa.BufferReader(run.store.read_bytes(path)))


def rows_of(run, published, config):
    paths = run.store.list(f"{published.path}/{config}")
    return [row for path in paths for row in read(run, path).to_pylist()]


def test_full_has_every_accepted_trace_in_order(finished):
    run, published = finished
    rows = rows_of(run, published, "full")
    accepted = run.accepted("annotators") + run.accepted("teacher")
    assert len(rows) == published.rows["full"] == accepted
    keys = [(r["task_type"], r["task_id"], r["model"], r["sample_index"]) for r in rows]
    assert keys == sorted(keys) and len(set(keys)) == len(keys)
    assert {row["reward"] for row in rows} > {0.0, 1.0}


def test_sft_configs_follow_the_split_rule(finished):
    run, published = finished
    full = [r for r in rows_of(run, published, "full") if r["model"] == run.TEACHER]
    everything = rows_of(run, published, "sft_unverified")
    verified = rows_of(run, published, "sft_verified")
    assert [row["task_id"] for row in everything] == [row["task_id"] for row in full]
    expected = [
        row["task_id"]
        for row in full
        if row["reward"] is not None
        and (row["reward"] == 1 if row["binary"] else row["reward"] > 0.7)
    ]
    assert [row["task_id"] for row in verified] == expected
    assert 0 < len(verified) < len(everything)
    for row in verified:
        assert row["messages"][-1] == {"role": "assistant", "content": row["completion"]}
        assert row["messages"][0]["role"] == "user"


def test_rl_has_a_row_per_task_with_difficulty(finished):
    run, published = finished
    rows = rows_of(run, published, "rl")
    assert {row["task_id"] for row in rows} == {task["task_id"] for task in run.tasks}
    assert {row["n_tracemill--nano-s"] for row in rows} <= set(range(5))
    rates = [row["pass_rate_tracemill--nano-m"] for row in rows]
    assert any(rate not in (None, 0.0, 1.0) for rate in rates)


def test_tasks_whose_verifier_never_scored_are_not_in_rl(new_run, rate_and_publish):
    def score(task, trace):
        return None if task["task_type"] == "reverse_text" else 1.0

    run = new_run().collect()
    for phase, models in (("annotators", run.ANNOTATORS), ("teacher", (run.TEACHER,))):
        run.plan(phase, models).generate(phase).validate(phase).verify(phase, score=score)
    published = rate_and_publish(run)
    assert {row["task_type"] for row in rows_of(run, published, "rl")} == {
        "reasoning_gym",
        "verifiable_math",
    }
    manifest = run.store.read_json(f"{published.path}/manifest.json")
    assert manifest["configs"]["rl"]["left_out"] == {"verifier_never_scored": 4}


def test_schemas_and_manifest(finished):
    run, published = finished
    slugs = [model.replace("/", "--") for model in run.ANNOTATORS]
    manifest = run.store.read_json(f"{published.path}/manifest.json")
    assert manifest["version"] == published.version and manifest["parent_version"] is None
    total = dict.fromkeys(CONFIGS, 0)
    for entry in manifest["files"]:
        data = run.store.read_bytes(f"{published.path}/{entry['path']}")
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry["bytes"], entry["sha256"])
        if entry["rows"] is None:
            continue
        config = entry["path"].split("/")[0]
        total[config] += entry["rows"]
        schema = pq.read_schema(pa.BufferReader(data))
        assert schema.names == contract.schema(config, slugs).names
    assert total == published.rows
    names = manifest["configs"]["full"]["files"]
    assert names[0] == f"full/train-00000-of-{len(names):05d}.parquet" and len(names) > 1


def test_nothing_private_gets_out(finished):
    run, published = finished
    for path in run.store.list(published.path):
        data = run.store.read_bytes(path)
        if path.endswith(".parquet"):
            data = json.dumps(read(run, path).to_pylist()).encode()
        assert not [word for word in PRIVATE if word.encode() in data], path
        assert path.endswith((".md", ".json")) or b"proofs" not in data


def test_unaudited_only_where_allowed(new_run, rate_and_publish):
    run = new_run().collect()
    for phase, models in (("annotators", run.ANNOTATORS), ("teacher", (run.TEACHER,))):
        run.plan(phase, models).generate(phase)
        run.validate(phase, unaudited=phase == "teacher").verify(phase)
    without = rate_and_publish(run)
    assert without.rows["sft_unverified"] == 0
    with_them = rate_and_publish(run, allow_unaudited=True)
    assert with_them.rows["sft_unverified"] == run.accepted("teacher")
    assert latest(run.store, "made")["version"] == with_them.version != without.version


def test_accepted_but_not_verified_is_held_back_and_counted(new_run, rate_and_publish):
    run = new_run().collect().stages("annotators", ("tracemill/nano-s", "tracemill/nano-m"))
    run.plan("teacher", (run.TEACHER,)).generate("teacher").validate("teacher")
    published = rate_and_publish(run)
    manifest = run.store.read_json(f"{published.path}/manifest.json")
    held = manifest["configs"]["full"]["left_out"]["rewards_missing"]
    assert held == run.accepted("teacher")
    assert published.rows["full"] + held == manifest["counts"]["accepted"]


def test_a_lost_reward_blocks_with_both_numbers(new_run, rate_and_publish):
    run = new_run().collect().stages("annotators", ("tracemill/nano-s",))
    # verify lost rows that validate accepted
    run.plan("teacher", (run.TEACHER,)).generate("teacher").validate("teacher")
    run.verify("teacher", reject=0.5)
    with pytest.raises(RowsDoNotAddUp, match=r"\d+ rows, but \d+ expected"):
        rate_and_publish(run)
    assert run.store.list("published") == []


def test_nothing_accepted_is_an_error(new_run, rate_and_publish):
    run = new_run().collect().plan("annotators", ("tracemill/nano-s",)).generate("annotators")
    run.validate("annotators", reject=1.1).verify("annotators", reject=1.1)
    with pytest.raises(NothingToPublish, match="tracemill status run-1"):
        rate_and_publish(run)
