"""A run that audits a part of its shards, with nodes that turn into liars."""

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from data_contracts.ids import model_slug
from infra.inference import load_engine
from infra.storage import RunLayout, Store, list_committed, read_table
from tasks.generate.stage import read_plan
from tasks.validate.config import ValidateConfig
from tasks.validate.work import judge

ROOT = Path(__file__).resolve().parents[2]
LIARS = Path(__file__).with_name("liars")
MODEL = "tracemill/nano-s"
SOURCE = (
    '{ kind = "reasoning_gym", generator = "spell_backward", size = 28, seed = 101, '
    "options = { min_word_len = 3, max_word_len = 6 } }"
)
USE = (
    f'{{ model = "{MODEL}", samples = 1, batch_size = 1, '
    "sampling = { temperature = 1.0, max_tokens = 24 } }"
)
# Two shards of three are not looked at once a node has a record of two audits.
SETTINGS = {
    "collect.sources": f"[{SOURCE}]",
    "generate.annotators": f"[{USE}]",
    "generate.teacher": USE,
    "validate.audit": "{ floor = 0.33, halving = 1 }",
    "publish.allow_unaudited": "true",
}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_a_caught_liar_was_believed_is_taken_back_and_made_again(cli, tmp_path, monkeypatch):
    root, layout = cli.root, RunLayout("audited")
    path = os.pathsep.join([str(LIARS), str(ROOT), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("LIAR_MARK", str(tmp_path / "a-lie-was-believed"))
    monkeypatch.setenv("LIAR_VERDICTS", str(root / layout.root / "verdicts"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    done = cli.run("audited", *(f"{key}={value}" for key, value in SETTINGS.items()))
    assert done.returncode == 0, done.stdout + done.stderr
    store = Store(str(root))
    slug = model_slug(MODEL)
    shards = [s for phase in ("annotators", "teacher") for s in read_plan(store, layout, phase)]

    # What was believed of the liars without a look is revoked, kept as evidence and in the funnel.
    records = list_committed(store, f"{layout.root}/revoked")
    taken_back = [row for r in records for row in read_table(store, r.path).to_pylist()]
    assert taken_back and {row["verdict"] for row in taken_back} == {"revoked"}
    evidence = [
        json.loads(row["row"])
        for manifest in list_committed(store, f"{layout.root}/quarantine/revoke")
        for row in read_table(store, manifest.path).to_pylist()
    ]
    assert {row["trace_id"] for row in evidence} == {row["trace_id"] for row in taken_back}
    funnel = json.loads((root / layout.funnel).read_text())
    assert funnel["complete"] and not funnel["problems"] and not funnel["missing"]
    (validated,) = (row for row in funnel["stages"] if row["stage"] == "validate")
    assert validated["reasons"]["revoked:node_caught"] == len(taken_back)
    assert validated["reasons"]["rejected:proof_missing"] >= 1
    assert validated["rows_in"] == len(shards)

    # A lie had been believed; what stands in its place now is the honest answer.
    liars = {row["node_id"] for row in evidence}
    traces = {
        row["trace_id"]: row
        for shard in shards
        for row in read_table(store, layout.traces(slug, shard.shard_id)).to_pylist()
    }
    lies = [row for row in evidence if row["output_ids"] != traces[row["trace_id"]]["output_ids"]]
    assert lies

    # All that counts as accepted now holds when it is looked at in full, and no liar made any of it
    # that was not looked at.
    verdicts = {
        row["trace_id"]: row["verdict"]
        for shard in shards
        for row in read_table(store, layout.verdicts(slug, shard.shard_id)).to_pylist()
    }
    accepted = [row for row in traces.values() if verdicts[row["trace_id"]].startswith("accepted")]
    unaudited = [r for r in accepted if verdicts[r["trace_id"]] == "accepted_unaudited"]
    assert not liars & {row["node_id"] for row in unaudited}
    engine = load_engine(MODEL)
    found = judge(accepted, engine, ValidateConfig())
    engine.close()
    assert {verdict.verdict for verdict in found.values()} == {"accepted"}

    # Nothing else is published.
    latest = json.loads((root / "published" / "tracemill-smoke" / "_LATEST.json").read_text())
    full = [
        row
        for path in (root / "published" / "tracemill-smoke" / latest["version"]).rglob("*.parquet")
        if "full" in str(path.relative_to(root))
        for row in pq.read_table(path).to_pylist()
    ]
    assert len(full) == len(accepted)
    published = {(row["task_id"], row["sample_index"]): row["completion"] for row in full}
    for row in accepted:
        assert published[row["task_id"], row["sample_index"]] == row["completion"]
