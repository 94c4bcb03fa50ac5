"""The stage end to end: real sources, verifiers, contract and storage."""

import json

import pytest

from infra.storage import RunLayout, Store, list_committed, read_table
from tasks.collect.collect import collect_tasks
from tasks.collect.config import CollectConfig, FileSource, MakerSource, ReasoningGymSource
from tasks.collect.errors import NothingCollected


@pytest.fixture
def layout():
    return RunLayout("r1")


@pytest.fixture
def store(request):
    return Store(f"memory://collect-{request.node.name}")


@pytest.fixture
def config(tmp_path):
    row = {
        "problem_id": "p",
        "task_type": "verifiable_math",
        "prompt": "What is 2 + 2?",
        "verification_info": '{"ground_truth": "4"}',
    }
    lines = [
        json.dumps(row),
        json.dumps({**row, "prompt": "what is 2  + 2?"}),
        json.dumps({**row, "prompt": "What is 2 + 3?", "gold": "\\boxed{5}"}),
        json.dumps({**row, "prompt": "What is 2 + 4?", "task_type": "no_such"}),
        "{broken",
        json.dumps({**row, "prompt": None}),
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines))
    return CollectConfig(
        sources=[
            FileSource(uri=str(path)),
            ReasoningGymSource(generator="chain_sum", size=5, seed=1),
            ReasoningGymSource(generator="chain_sum", size=5, seed=1),
            MakerSource(task_type="reverse_text", size=5),
        ]
    )


def test_every_row_is_kept_or_quarantined(config, store, layout):
    manifest = collect_tasks(config, store, layout)
    assert manifest.info["counts"] == {
        "rows_in": 21,
        "rows_out": 11,
        "quarantined": 10,
        "reasons": {
            "bad_json": 1,
            "duplicate_prompt": 6,
            "gold_fails": 1,
            "missing_key": 1,
            "unknown_task_type": 1,
        },
    }
    assert manifest.info["by_task_type"] == {
        "reasoning_gym": 5,
        "reverse_text": 5,
        "verifiable_math": 1,
    }
    tasks = read_table(store, layout.tasks).to_pylist()
    assert [task["task_type"] for task in tasks] == (
        ["verifiable_math"] + ["reasoning_gym"] * 5 + ["reverse_text"] * 5
    )
    assert all(json.loads(task["metadata"])["gold_test"] == "passed" for task in tasks)
    rows = read_table(store, layout.quarantine("collect", "part-00000")).to_pylist()
    assert len(rows) == 10
    broken = next(row for row in rows if row["reason"].startswith("bad_json"))
    assert json.loads(broken["row"]) == {"line": "{broken\n"}
    assert broken["origin"].endswith("rows.jsonl:5")


def test_committed_tasks_stay_whatever_the_sources_give(config, store, layout):
    first = collect_tasks(config, store, layout)
    other = CollectConfig(sources=[MakerSource(task_type="reverse_text", size=2)])
    assert collect_tasks(other, store, layout) == first
    assert read_table(store, layout.tasks).num_rows == 11


def test_two_runs_commit_the_same_bytes(config, store):
    first = collect_tasks(config, store, RunLayout("a"))
    second = collect_tasks(config, store, RunLayout("b"))
    assert first.sha256 == second.sha256
    assert first.info == second.info


def test_nothing_to_do_is_an_error_and_commits_nothing(tmp_path, store, layout):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n')
    with pytest.raises(NothingCollected, match="missing_key"):
        collect_tasks(CollectConfig(sources=[FileSource(uri=str(path))]), store, layout)
    assert list_committed(store, "runs") == []
