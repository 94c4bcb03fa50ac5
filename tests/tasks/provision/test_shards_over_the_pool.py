"""Shards of a real model through the service: generated, uploaded, ingested, judged."""

from infra.pool.ledger import entries
from infra.storage import RunLayout, Store, read_table
from tasks.generate.config import ModelUse, SamplingConfig
from tasks.generate.stage import Generator, read_plan
from tasks.provision.config import ProvisionConfig
from tasks.provision.local import local_pool
from tasks.validate.config import ValidateConfig
from tasks.validate.stage import Validator

USE = ModelUse(
    model="tracemill/nano-s",
    samples=2,
    batch_size=4,
    sampling=SamplingConfig(max_tokens=12),
)
LAYOUT = RunLayout("r")


def test_a_plan_is_generated_and_judged_by_nodes(tmp_path, plan_words, reader):
    store = Store(str(tmp_path))
    plan_words(store, LAYOUT, USE)
    shards = read_plan(store, LAYOUT, "annotators")
    with local_pool(ProvisionConfig(nodes=1), store, LAYOUT.root) as pool:
        generator = Generator(store, LAYOUT, [USE], pool, reader)
        validator = Validator(store, LAYOUT, ValidateConfig(), pool)
        for shard in shards:
            traces = generator.run(shard)
            verdicts = validator.run(shard)
            rows = read_table(store, traces.path).to_pylist()
            assert {row["node_id"] for row in rows} <= {known.node_id for known in pool.nodes()}
            judged = read_table(store, verdicts.path).to_pylist()
            assert {row["verdict"] for row in judged} == {"accepted"}
            assert len(rows) == len(judged) == len(shard.rows)
    assert store.list(f"{LAYOUT.root}/uploads") == []
    ledger = [entry.record for entry in entries(store)]
    accepted = [r.shard_id for r in ledger if r.kind == "verdict" and r.accepted]
    assert len(accepted) == len(set(accepted)) == 2 * len(shards)
