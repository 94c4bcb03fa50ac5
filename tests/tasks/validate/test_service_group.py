"""A group's files in storage: accepted whole, or the stage named that did not do its part."""

import hashlib
import io
import json

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save

from data_contracts import generate as contract
from data_contracts.text import table_from_rows
from infra.inference.protocol import PROOF_ROWS
from infra.models import registry
from infra.storage import read_table
from infra.storage.parquet import parquet_bytes
from tasks.validate.check import TOPK
from tasks.validate.config import ValidateConfig
from tasks.validate.service_files import UploadReader
from tasks.validate.service_group import validate_group
from tasks.validate.service_queue import WorkQueue
from tasks.validate.work_units import WorkUnits
from toploc.build import prove
from toploc.groups import GroupTask, StageSigner, rows_digest, tokens_digest
from toploc.signing import SigningKey
from toploc.transcript import Transcript

MODEL = "tracemill/nano-s"
GROUP, NAME = "00aa11", "u/run-00aa11-2-7.parquet"
KEYS = [SigningKey(bytes([stage + 1]) * 32) for stage in range(2)]


class Bench:
    """The service's parts around one store, and a group of two that uploads to it."""

    def __init__(self, store, engine, queue):
        self.store, self.engine, self.queue = store, engine, queue
        self.stages = engine.stages(2)
        self.reader = UploadReader(store, MODEL, engine.revision)
        self.units = WorkUnits.of_directory(registry.materialise(MODEL))
        self.inputs: dict[str, torch.Tensor] = {}

    def upload(self, rows, wrong_stage: int | None = None) -> dict:
        """The files of both stages; a wrong stage adds noise to what it gives on."""
        tables: list[list[dict]] = [[], []]
        for row in rows:
            for stage, record in enumerate(self._records(row, wrong_stage)):
                mine = row | {
                    "node_id": KEYS[stage].node_id,
                    "group_id": GROUP,
                    "stage_proofs": [record.to_bytes()],
                    "proofs": record.proofs,
                }
                transcript = Transcript.of_row(mine)
                mine["transcript_hash"], mine["signature"] = transcript.sign(KEYS[stage])
                tables[stage].append(mine)
        shas = []
        for stage, table in enumerate(tables):
            data = parquet_bytes(table_from_rows(table, contract.SCHEMA))
            self.store.write_bytes(
                NAME.replace(".parquet", f"-{stage}.parquet"), data, overwrite=True
            )
            shas.append(hashlib.sha256(data).hexdigest())
        return {"file_shas": shas, "group_id": GROUP, "file_number": 7, "group_size": 2}

    def _records(self, row, wrong_stage):
        task = GroupTask(
            GROUP, tuple(key.node_id for key in KEYS), row["trace_id"], row["model_revision"],
            row["prompt_ids"], row["sampling"], row["seed"],
        )  # fmt: skip
        signers = [StageSigner(task, stage, key) for stage, key in enumerate(KEYS)]
        rows = torch.tensor([*row["prompt_ids"], *row["output_ids"][:-1]])
        proofs, contents = [], []
        for stage in range(2):
            rows = self.stages.run(stage, rows).clone()
            if stage == wrong_stage:
                rows += torch.randn(rows.shape, generator=torch.Generator().manual_seed(1))
            mine = rows[len(row["prompt_ids"]) - 1 :].to(torch.bfloat16)
            proofs.append(prove(mine, topk=TOPK, decode_batching_size=PROOF_ROWS))
            contents.append(rows_digest(rows))
            if stage == 0:
                self.inputs[row["trace_id"]] = rows
        contents[1] = tokens_digest(row["output_ids"])
        sent = [signers[stage].dispatch(contents[stage]) for stage in range(2)]
        receipts = [
            signers[1 - stage].countersign(sent[stage], contents[stage]) for stage in (0, 1)
        ]
        return [signers[stage].record(receipts[stage], proofs[stage]) for stage in range(2)]

    def ask(self, request) -> dict | None:
        self.queue.trigger(f"group:{NAME}", request)
        work = self.queue.find(f"group:{NAME}")
        return validate_group(
            NAME, work, self.queue, self.store, self.reader, self.engine, ValidateConfig(),
            self.units,
        )  # fmt: skip


@pytest.fixture
def bench(planned, nano, tmp_path):
    made = Bench(planned, nano, WorkQueue(tmp_path / "state" / "queue.sqlite"))
    yield made
    made.reader.close()


@pytest.fixture
def rows(planned, generator, shards):
    return read_table(planned, generator.run(shards[0]).path).to_pylist()


def test_an_honest_group_is_accepted_with_the_work_of_all_its_traces(bench, rows):
    found = bench.ask(bench.upload(rows))
    assert (found["status"], found["failing_indices"]) == ("accept", []), found
    sizes = [bench.units.flops(len(r["prompt_ids"]), len(r["output_ids"])) for r in rows]
    assert found["output_flops"] == sum(output for _, output in sizes)


def test_a_stage_that_computes_wrongly_is_named_from_the_input_that_it_hands_out(bench, rows):
    request = bench.upload(rows, wrong_stage=0)
    assert bench.ask(request) is None
    pending = bench.queue.find(f"group:{NAME}").result
    (challenge,) = pending["challenge"]
    assert challenge["index"] == 1 and challenge["trace_id"] == rows[0]["trace_id"]
    bench.store.write_bytes(challenge["file"], save({"rows": bench.inputs[rows[0]["trace_id"]]}))
    for row in rows[1:]:
        file = challenge["file"].replace(rows[0]["trace_id"], row["trace_id"])
        bench.store.write_bytes(file, save({"rows": bench.inputs[row["trace_id"]]}))
    found = bench.ask(request)
    assert (found["status"], found["failing_indices"]) == ("reject", [0]), found
    assert "computed_wrongly" in found["reason"]


def test_an_input_that_does_not_come_in_time_is_its_stages_fault(bench, rows):
    request = bench.upload(rows, wrong_stage=1)
    assert bench.ask(request) is None
    bench.queue._db.execute(
        "UPDATE work SET result = ?",
        (json.dumps(bench.queue.find(f"group:{NAME}").result | {"deadline": 0}),),
    )
    found = bench.ask(request)
    assert found["status"] == "reject" and found["failing_indices"] == [1], found
    assert "withheld_input" in found["reason"]


def test_a_group_with_a_trace_that_a_stage_lacks_is_incomplete_and_nobody_is_guilty(bench, rows):
    request = bench.upload(rows)
    name = NAME.replace(".parquet", "-0.parquet")
    short = read_rows(bench.store, name)[:-1]
    data = parquet_bytes(table_from_rows(short, contract.SCHEMA))
    bench.store.write_bytes(name, data, overwrite=True)
    request["file_shas"][0] = hashlib.sha256(data).hexdigest()
    found = bench.ask(request)
    assert (found["status"], found["failing_indices"]) == ("unknown", []), found
    assert "incomplete" in found["reason"]


def test_a_stages_file_that_is_not_the_one_triggered_is_that_stages(bench, rows):
    request = bench.upload(rows)
    request["file_shas"][1] = "0" * 64
    found = bench.ask(request)
    assert found["failing_indices"] == [1] and "other_sha256" in found["reason"]


def read_rows(store, name):
    return pq.read_table(io.BytesIO(store.read_bytes(name))).to_pylist()
