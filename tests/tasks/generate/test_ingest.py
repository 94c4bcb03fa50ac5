"""The trusted side against nodes that lie: what is taken in, set aside, and refused."""

import hashlib
import tempfile
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_contracts.ids import canonical_json
from data_contracts.text import table_from_rows
from infra.pool import Job, JobResult, Upload
from infra.storage import RunLayout, Store, read_manifest, read_table
from infra.storage.parquet import parquet_bytes
from tasks.generate import upload
from tasks.generate.config import ModelUse, SamplingConfig
from tasks.generate.errors import UploadRejected
from tasks.generate.stage import Generator, read_plan
from tasks.generate.work import generate_shard
from toploc.signing import SigningKey, verify
from toploc.transcript import Transcript

MODEL = "tracemill/nano-s"
USE = ModelUse(
    model=MODEL,
    samples=2,
    batch_size=4,
    batches_per_shard=2,
    sampling=SamplingConfig(max_tokens=24),
)
LAYOUT = RunLayout("r")


@pytest.fixture
def store(tmp_path, plan_words) -> Store:
    store = Store(str(tmp_path))
    plan_words(store, LAYOUT, USE)
    return store


class OneNode:
    """A node in this process; `tamper` changes the rows that it has signed."""

    def __init__(self, engine, tamper=None, sha256=None):
        self.engine, self.tamper, self.sha256 = engine, tamper, sha256
        self.key = SigningKey.generate()
        self.signs_with = self.key
        self.jobs: list[Job] = []

    def submit(self, job: Job, check):
        self.jobs.append(job)
        with tempfile.TemporaryDirectory() as out:
            output = generate_shard(
                job.payload, lambda model: self.engine, Path(out), self.signs_with
            )
            (made,) = Path(out).iterdir()
            data = made.read_bytes()
        if self.tamper:
            changed = self.tamper(upload_rows(data))
            data = changed if isinstance(changed, bytes) else packed(changed)
        path = f"runs/r/uploads/{self.key.node_id}/{job.job_id}"
        self.store.write_bytes(path, data)
        sha256 = self.sha256 or hashlib.sha256(data).hexdigest()
        file = Upload(path, sha256, len(data))
        future = Future()
        try:
            check(JobResult(job.job_id, self.key.node_id, output, 1.0, (file,)))
        except UploadRejected as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        return future


def upload_rows(data: bytes) -> list[dict]:
    return pq.read_table(pa.BufferReader(data)).to_pylist()


def packed(rows: list[dict]) -> bytes:
    return parquet_bytes(table_from_rows(rows, upload.SCHEMA))


def generate(store, reader, node):
    node.store = store
    generator = Generator(store, LAYOUT, [USE], node, reader)
    (shard,) = read_plan(store, LAYOUT, "annotators")
    return shard, generator.run(shard)


def test_an_honest_shard_is_committed_once_and_its_upload_removed(store, reader, nano):
    node = OneNode(nano)
    shard, manifest = generate(store, reader, node)
    assert manifest.rows == 8
    assert manifest.info["counts"] == {
        "rows_in": 8, "rows_out": 8, "quarantined": 0, "reasons": {},
    }  # fmt: skip
    assert store.list("runs/r/uploads") == []
    rows = read_table(store, manifest.path).to_pylist()
    assert {row["trace_id"] for row in rows} == {row["trace_id"] for row in shard.rows}
    assert all(row["completion"].startswith("<think>") for row in rows)
    for row in rows:
        assert row["node_id"] == node.key.node_id
        assert verify(row["node_id"], row["transcript_hash"], row["signature"])
        assert Transcript.of_row(row).digest() == row["transcript_hash"]
    generate(store, reader, node)
    assert len(node.jobs) == 1, "a committed shard was generated again"


def test_a_node_never_sees_a_task_or_its_answer(store, reader, nano):
    node = OneNode(nano)
    generate(store, reader, node)
    payload = str(node.jobs[0].payload)
    assert "ground_truth" not in payload and "task_id" not in payload


def change_first(**values):
    def tamper(rows):
        rows[0].update(values)
        return rows

    return tamper


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (change_first(output_ids=[1] * 25, logprobs=[-1.0] * 25), "too_many_tokens"),
        (change_first(logprobs=[-1.0]), "logprobs_do_not_match_tokens"),
        (change_first(output_ids=[-5], logprobs=[-1.0]), "bad_token_id"),
        (change_first(output_ids=[5], logprobs=[float("nan")]), "bad_logprob"),
        (change_first(output_ids=[5], logprobs=[7.0]), "bad_logprob"),
        (change_first(output_ids=[], logprobs=[], proofs=b""), "ok_without_tokens"),
        (change_first(status="fine"), "unknown_status"),
        (change_first(finish_reason="bored"), "unknown_finish_reason"),
        (change_first(engine="e" * 65), "bad_engine"),
    ],
)
def test_a_row_that_cannot_be_a_sample_is_set_aside_and_the_others_go_on(
    store, reader, nano, tamper, reason
):
    node = OneNode(nano, tamper)
    shard, manifest = generate(store, reader, node)
    assert manifest.rows == 7
    assert manifest.info["counts"]["reasons"] == {reason: 1}
    aside = read_table(store, LAYOUT.quarantine("generate", shard.shard_id)).to_pylist()
    assert [row["reason"] for row in aside] == [reason]
    assert [row["origin"] for row in aside] == [node.key.node_id]


def change_token(rows):
    rows[0]["output_ids"][0] = rows[0]["output_ids"][0] % 200 + 1
    return rows


def copy_from_second(*columns):
    def tamper(rows):
        rows[0].update({column: rows[1][column] for column in columns})
        return rows

    return tamper


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (change_token, "transcript_mismatch"),
        (copy_from_second("proofs"), "transcript_mismatch"),
        (copy_from_second("logprobs", "output_ids", "proofs"), "transcript_mismatch"),
        (copy_from_second("transcript_hash", "signature"), "transcript_mismatch"),
        (copy_from_second("transcript_hash"), "transcript_mismatch"),
        (change_first(engine="another|processor|float32|sdpa"), "transcript_mismatch"),
        (change_first(transcript_hash=b""), "transcript_mismatch"),
        (copy_from_second("signature"), "bad_signature"),
        (change_first(signature=b""), "bad_signature"),
        (change_first(signature=bytes(64)), "bad_signature"),
    ],
    ids=[
        "a token changed", "proofs of another trace", "answer of another trace",
        "binding of another trace", "hash of another trace", "another engine", "no hash",
        "signature of another trace", "no signature", "zero signature",
    ],
)  # fmt: skip
def test_a_row_that_is_not_what_was_signed_is_set_aside(store, reader, nano, tamper, reason):
    _, manifest = generate(store, reader, OneNode(nano, tamper))
    assert manifest.rows == 7
    assert manifest.info["counts"]["reasons"] == {reason: 1}


@pytest.mark.parametrize("in_its_name", [True, False])
def test_a_file_that_another_node_signed_is_refused(store, reader, nano, in_its_name):
    """Copied as it is, or signed in this node's name with a key that is not its own."""
    node, other = OneNode(nano), OneNode(nano)
    node.signs_with = other.key
    if in_its_name:
        node.tamper = lambda rows: [renamed(node, row) for row in rows]
    reason = "bad_signature" if in_its_name else "transcript_mismatch"
    with pytest.raises(UploadRejected, match=f"none of its rows can be taken.*{reason}"):
        generate(store, reader, node)


def renamed(node, row):
    payload = node.jobs[0].payload
    asked = {r["trace_id"]: r for batch in payload["batches"] for r in batch}[row["trace_id"]]
    transcript = Transcript.of_row(
        row
        | asked
        | {
            "model_revision": payload["revision"],
            "sampling": canonical_json(payload["sampling"]),
            "node_id": node.key.node_id,
            "group_id": None,
            "stage_proofs": None,
        }
    )
    hashed = transcript.digest()
    return row | {"transcript_hash": hashed, "signature": node.signs_with.sign(hashed)}


def swap_ids(rows):
    rows[0]["trace_id"] = "f" * 32
    return rows


@pytest.mark.parametrize(
    ("tamper", "sha256", "problem"),
    [
        (lambda rows: rows[:-1], None, "7 rows, the plan 8"),
        (lambda rows: [*rows, rows[0]], None, "9 rows, the plan 8"),
        (lambda rows: [*rows[:-1], rows[0]], None, "trace ids are not those of the shard"),
        (swap_ids, None, "trace ids are not those of the shard"),
        (lambda rows: b"not parquet at all", None, "not readable as parquet"),
        (lambda rows: rows, "0" * 64, "sha256 is not the one"),
    ],
    ids=["row missing", "row more", "row twice", "foreign id", "garbage", "wrong sha"],
)
def test_a_file_that_is_not_what_was_asked_for_is_refused(
    store, reader, nano, tamper, sha256, problem
):
    with pytest.raises(UploadRejected, match=problem) as error:
        generate(store, reader, OneNode(nano, tamper, sha256))
    assert error.value.retryable
    (shard,) = read_plan(store, LAYOUT, "annotators")
    assert read_manifest(store, LAYOUT.traces("tracemill--nano-s", shard.shard_id)) is None
    _, manifest = generate(store, reader, OneNode(nano))
    assert manifest.rows == 8
