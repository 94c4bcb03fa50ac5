"""`datasets` opens what was published, offline, as a user would."""

import json
import os
import subprocess
import sys

import yaml

from tasks.publish import CONFIGS

SCRIPT = """
import json, sys
from datasets import load_dataset, load_dataset_builder
path, *configs = sys.argv[1:]
found = {"default": load_dataset_builder(path).config.name}
for name in configs:
    config, _, mode = name.partition(":")
    table = load_dataset(path, config, streaming=mode == "stream")["train"]
    rows = list(table)
    found[name] = [len(rows), table.column_names, rows[0] if rows else None]
print(json.dumps(found))
"""


def load(folder, cache, configs):
    """Open configs in a process of its own; `config:stream` opens it streamed."""
    env = os.environ | {
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(cache),
        "HF_DATASETS_CACHE": str(cache / "datasets"),
    }
    command = [sys.executable, "-c", SCRIPT, str(folder), *configs]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_each_config_opens(finished, tmp_path):
    run, published = finished
    found = load(run.store.local_path(published.path), tmp_path / "hf", CONFIGS)
    assert {config: found[config][0] for config in CONFIGS} == published.rows
    assert found["default"] == "full"
    assert found["full"][2]["prompt"][0]["role"] == "user"
    assert "pass_rate_tracemill--nano-s" in found["rl"][1]
    assert published.rows["full"] > 50, "more than one file"


def test_a_config_without_rows_opens_streamed(new_run, rate_and_publish, tmp_path):
    # datasets 5.2 refuses any split without rows unless it is streamed; the others must not suffer
    run = new_run(root=str(tmp_path / "data")).collect(per_kind=1)
    run.stages("annotators", ("tracemill/nano-s", "tracemill/nano-m"))
    run.plan("teacher", (run.TEACHER,)).generate("teacher").validate("teacher")
    run.verify("teacher", score=lambda task, trace: 0.0)
    published = rate_and_publish(run)
    assert published.rows["sft_verified"] == 0
    folder = run.store.local_path(published.path)
    streamed = "sft_verified:stream"
    found = load(folder, tmp_path / "hf", [streamed, "sft_unverified", "full"])
    assert found[streamed][:2] == [0, found["sft_unverified"][1]]
    assert found["full"][0] == published.rows["full"]
    assert "sft_verified" in (folder / "README.md").read_text().split("## Use")[1]


def test_card_front_matter(finished):
    run, published = finished
    text = run.store.read_bytes(f"{published.path}/README.md").decode()
    _, front, body = text.split("---\n", 2)
    card = yaml.safe_load(front)
    assert [entry["config_name"] for entry in card["configs"]] == list(CONFIGS)
    assert card["license"] == "apache-2.0" and card["size_categories"] == ["n<1K"]
    counts = {
        info["config_name"]: info["splits"][0]["num_examples"] for info in card["dataset_info"]
    }
    assert counts == published.rows
    for word in ("org/teacher", "toploc@1 default", "reverse_text@1", "made/reasoning_gym"):
        assert word in body
    assert f"| `full` | {published.rows['full']} |" in body


def test_features_are_those_that_datasets_would_write(finished):
    import pyarrow.parquet as pq
    from datasets import Features

    run, published = finished
    card = run.store.read_bytes(f"{published.path}/README.md").decode()
    infos = {i["config_name"]: i for i in yaml.safe_load(card.split("---\n")[1])["dataset_info"]}
    for config in CONFIGS:
        folder = run.store.local_path(f"{published.path}/{config}")
        schema = pq.read_schema(next(folder.iterdir()))
        theirs = Features.from_arrow_schema(schema)
        assert Features._from_yaml_list(infos[config]["features"]) == theirs
