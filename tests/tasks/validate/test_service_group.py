"""A group's files in storage: accepted whole, or the stage named that did not do its part."""

import json
import struct
import time
from types import SimpleNamespace

import pytest
from pipeline import Group, name_of

from infra.inference import load_engine
from infra.inference.prompts import ChatTokenizer
from infra.inference.protocol import Request, SamplingParams
from infra.models import registry
from infra.storage import Store, read_table
from tasks.generate.work import ProofSink
from tasks.validate import service_group
from tasks.validate.config import ValidateConfig
from tasks.validate.service_files import UploadReader
from tasks.validate.service_group import read_rows, validate_group
from tasks.validate.service_queue import WorkQueue
from tasks.validate.work_units import WorkUnits
from toploc.replay import CHALLENGE_SECONDS

MODEL = "tracemill/nano-s"
NUMBER = 7


class Bench:
    """The service's parts around one store."""

    def __init__(self, store, engine, queue, size=2):
        self.store, self.engine, self.queue = store, engine, queue
        self.group, self.name = Group(store, engine, size), name_of(NUMBER, size)
        directory = registry.materialise(engine.model_id)
        tokenizer = ChatTokenizer(directory, engine.model_id)
        self.reader = UploadReader(store, tokenizer, engine.revision)
        self.units = WorkUnits.of_directory(directory)

    def ask(self, request) -> dict | None:
        self.queue.trigger(f"group:{self.name}", request)
        work = self.queue.find(f"group:{self.name}")
        return validate_group(
            self.name, work, self.queue, self.store, self.reader, self.engine, ValidateConfig(),
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
    found = bench.ask(bench.group.upload(rows, NUMBER))
    assert (found["status"], found["failing_indices"]) == ("accept", []), found
    sizes = [bench.units.flops(len(r["prompt_ids"]), len(r["output_ids"])) for r in rows]
    assert found["output_flops"] == sum(output for _, output in sizes)


def test_a_stage_that_computes_wrongly_is_named_from_the_input_that_it_hands_out(bench, rows):
    request = bench.group.upload(rows, NUMBER, wrong_stage=0)
    assert bench.ask(request) is None
    pending = bench.queue.find(f"group:{bench.name}").result
    # Stage 0 got tokens, which are in the last stage's file.
    assert [(one["index"], one["trace_id"]) for one in pending["challenge"]] == [
        (1, row["trace_id"]) for row in rows
    ]
    for row in rows:
        bench.group.hand_out(NUMBER, row["trace_id"])
    assert all(bench.store.exists(one["file"]) for one in pending["challenge"])
    found = bench.ask(request)
    assert (found["status"], found["failing_indices"]) == ("reject", [0]), found
    assert "computed_wrongly" in found["reason"]


def made_by(engine, rows) -> list[dict]:
    """What another engine makes of the same tasks."""
    requests = [Request(r["trace_id"], tuple(r["prompt_ids"]), r["seed"]) for r in rows]
    sampling = json.loads(rows[0]["sampling"])
    params = SamplingParams(**sampling | {"stop": tuple(sampling["stop"])})
    return [
        row
        | {
            "model": engine.model_id,
            "model_revision": engine.revision,
            "output_ids": done.output_ids,
            "completion": done.text,
            "logprobs": done.logprobs,
            "finish_reason": done.finish_reason,
            "engine": engine.environment,
        }
        for row, done in zip(rows, engine.generate(requests, params, ProofSink()), strict=True)
    ]


@pytest.fixture
def clock(monkeypatch):
    """Seconds since 1970, as the group's judge sees them."""
    now = [time.time()]
    monkeypatch.setattr(service_group, "time", SimpleNamespace(time=lambda: now[0]))
    return now


def test_an_input_that_does_not_come_in_time_is_its_stages_fault(bench, rows, clock):
    request = bench.group.upload(rows, NUMBER, wrong_stage=1)
    assert bench.ask(request) is None
    clock[0] += CHALLENGE_SECONDS - 1
    assert bench.ask(request) is None
    clock[0] += 2
    found = bench.ask(request)
    assert found["status"] == "reject" and found["failing_indices"] == [1], found
    assert "withheld_input" in found["reason"]


@pytest.fixture
def four(planned, tmp_path):
    """A model of four layers in four stages."""
    engine = load_engine("tracemill/nano-l")
    made = Bench(planned, engine, WorkQueue(tmp_path / "state" / "queue.sqlite"), size=4)
    yield made
    made.reader.close()
    engine.close()


def test_a_stage_that_hands_out_late_takes_nobody_elses_time(four, rows, clock):
    """Stage 1's proofs are of its honest output: only what stage 2 got shows what it sent."""
    bench, rows = four, made_by(four.engine, rows[:2])
    request = bench.group.upload(rows, NUMBER, wrong_stage=1, honest_proofs=True)
    assert bench.ask(request) is None
    asked = bench.queue.find(f"group:{bench.name}").result["challenge"]
    assert [(one["trace_id"], one["index"]) for one in asked] == [
        (row["trace_id"], stage) for row in rows for stage in (1, 2, 3)
    ]
    for stage in (2, 3):
        for row in rows:
            bench.group.hand_out(NUMBER, row["trace_id"], stage)
    clock[0] += CHALLENGE_SECONDS - 1
    assert bench.ask(request) is None
    for row in rows:
        bench.group.hand_out(NUMBER, row["trace_id"], 1)
    found = bench.ask(request)
    assert (found["status"], found["failing_indices"]) == ("reject", [1]), found
    assert "sent_other_than_committed" in found["reason"]


def test_a_stage_on_a_processor_that_nobody_calibrated_is_refused_but_not_named(bench, rows):
    elsewhere = [row | {"engine": "transformers|nobodys|float32|sdpa"} for row in rows]
    assert bench.ask(bench.group.upload(elsewhere, NUMBER))["status"] == "accept"
    bench.queue._db.execute("DELETE FROM work")
    request = bench.group.upload(elsewhere, NUMBER, wrong_stage=0)
    for row in rows:
        bench.group.hand_out(NUMBER, row["trace_id"])
    found = bench.ask(request)
    assert (found["status"], found["failing_indices"]) == ("unknown", []), found
    assert "outside_calibration" in found["reason"]


@pytest.fixture(scope="module")
def half():
    """The model as nodes with half precision run it."""
    loaded = load_engine(MODEL, dtype="bfloat16")
    yield loaded
    loaded.close()


@pytest.mark.parametrize(
    ("wrong", "kind"),
    # The last stage's tokens are right here: what it says of their states is not.
    [(None, None), (0, "computed_wrongly"), (1, "lied_in_proof")],
)
def test_a_group_in_half_precision_is_judged_as_such(bench, half, rows, wrong, kind):
    half_rows = made_by(half, rows)
    assert all("|bfloat16|" in row["engine"] for row in half_rows)
    bench.group = Group(bench.store, half)
    request = bench.group.upload(half_rows, NUMBER, wrong_stage=wrong)
    for row in half_rows:
        bench.group.hand_out(NUMBER, row["trace_id"])
    found = bench.ask(request)
    if kind is None:
        assert (found["status"], found["failing_indices"]) == ("accept", []), found
    else:
        assert (found["status"], found["failing_indices"]) == ("reject", [wrong]), found
        assert kind in found["reason"]


def test_a_group_with_a_trace_that_a_stage_lacks_is_incomplete_and_nobody_is_guilty(bench, rows):
    found = bench.ask(bench.group.upload(rows, NUMBER, missing=1))
    assert (found["status"], found["failing_indices"]) == ("unknown", []), found
    assert "incomplete" in found["reason"]


def test_a_trace_that_was_started_again_is_judged_as_what_its_stages_signed(bench, rows):
    request = bench.group.upload(rows, NUMBER, attempt=2)
    assert bench.ask(request)["status"] == "accept"
    bench.queue._db.execute("DELETE FROM work")
    assert "incomplete" in bench.ask(request | {"attempt": 0})["reason"]


def test_a_stages_file_that_is_not_the_one_triggered_is_that_stages(bench, rows):
    request = bench.group.upload(rows, NUMBER)
    request["file_shas"][1] = "0" * 64
    found = bench.ask(request)
    assert found["failing_indices"] == [1] and "other_sha256" in found["reason"]


@pytest.mark.parametrize("dtype", ["F4", "F8_E8M0", "no_such"])
def test_rows_of_a_dtype_that_torch_lacks_are_none(tmp_path, dtype):
    header = {"rows": {"dtype": dtype, "shape": [4], "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    assert read_rows(Store(str(tmp_path)), "x.safetensors") is None
