"""`tracemill proof` on the traces of a nano model, honest and damaged."""

import json

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from data_contracts import generate as contract
from data_contracts import ids
from data_contracts.text import table_from_rows
from flows.cli import app
from infra.inference import load_engine
from infra.inference.protocol import Request, SamplingParams
from infra.storage.parquet import parquet_bytes
from tasks.generate.work import ProofSink
from toploc import ProofPoly
from toploc.signing import SigningKey
from toploc.transcript import Transcript

MODEL = "tracemill/nano-s"
SAMPLING = {
    "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "max_tokens": 40, "stop": [],
}  # fmt: skip
runner = CliRunner()


@pytest.fixture(scope="module")
def rows():
    engine, sink, key = load_engine(MODEL), ProofSink(), SigningKey.generate()
    requests = []
    for number, word in enumerate(("lamp", "river", "window")):
        text = f"Spell this word backward (example: sun -> nus): {word}"
        prompt, _ = engine.render([{"role": "user", "content": text}])
        trace_id = f"{number:032x}"
        requests.append(Request(trace_id, tuple(prompt), ids.trace_seed(trace_id)))
    made = []
    for request, done in zip(
        requests,
        engine.generate(requests, SamplingParams(**SAMPLING | {"stop": ()}), sink),
        strict=True,
    ):
        row = dict.fromkeys(contract.SCHEMA.names) | {
            "trace_id": request.trace_id,
            "task_id": "0" * 32,
            "model": MODEL,
            "model_revision": engine.revision,
            "sample_index": 0,
            "seed": request.seed,
            "sampling": ids.canonical_json(SAMPLING),
            "prompt_ids": list(request.prompt_ids),
            "output_ids": done.output_ids,
            "logprobs": done.logprobs,
            "completion": done.text,
            "status": done.status,
            "finish_reason": done.finish_reason,
            "proofs": sink.of(request.trace_id),
            "engine": engine.name,
            "node_id": key.node_id,
            "seconds": 0.1,
        }
        row["transcript_hash"], row["signature"] = Transcript.of_row(row).sign(key)
        made.append(row)
    engine.close()
    return made


@pytest.fixture
def write(tmp_path):
    def write(rows, name="traces.parquet"):
        path = tmp_path / name
        path.write_bytes(parquet_bytes(table_from_rows(rows, contract.SCHEMA)))
        return str(path)

    return write


def run(*arguments, code=0):
    done = runner.invoke(app, ["proof", *arguments])
    assert done.exit_code == code, done.output
    return done


def test_honest_traces_are_inspected_and_verified(rows, write, tmp_path):
    file = write(rows)
    seen = json.loads(run("inspect", file, "--json").stdout)
    assert seen["traces"] == 3 and seen["traces_with_problems"] == 0
    assert seen["proofs"] == sum(len(row["proofs"]) for row in rows) // 258
    assert seen["moduli"] == {"65497": seen["proofs"]} and seen["least_degree"] >= 126
    judged = json.loads(run("verify", file, "--json").stdout)
    assert judged["verdicts"] == {"accepted": 3}
    assert [row["trace_id"] for row in judged["rows"]] == [row["trace_id"] for row in rows]
    assert "traces: 3" in run("inspect", str(tmp_path)).stdout


def test_what_is_wrong_is_named_and_exits_1(rows, write):
    short = rows[0] | {"proofs": rows[0]["proofs"][:-1]}
    copied = rows[1] | {"proofs": rows[2]["proofs"]}
    null = rows[2] | {"proofs": ProofPoly.null(128).to_bytes(), "transcript_hash": None}
    file = write([short, copied, rows[2]])
    found = json.loads(run("inspect", file, "--json", code=1).stdout)["rows"]
    assert [bool(row["problems"]) for row in found] == [True, True, True]
    assert any("proof_length" in problem for problem in found[0]["problems"])
    assert any("transcript_mismatch" in problem for problem in found[1]["problems"])
    assert any("copied" in problem for problem in found[2]["problems"])
    judged = json.loads(run("verify", file, "--json", code=1).stdout)
    assert judged["verdicts"] == {"accepted": 1, "rejected": 2}
    text = run("inspect", write([null]), code=1).stdout
    assert "null proof" in text and "unsigned" in text


def test_a_changed_signature_refuses_what_the_model_accepts(rows, write):
    other = rows[0] | {"signature": bytes(64)}
    judged = json.loads(run("verify", write([other]), "--json", code=1).stdout)
    assert judged["rows"][0]["verdict"] == "rejected"
    assert judged["rows"][0]["reasons"] == [f"bad_signature: node {rows[0]['node_id']} did not "
                                            "sign this transcript"]  # fmt: skip


def test_a_text_that_is_not_the_tokens_is_refused(rows, write):
    others = [rows[0] | {"completion": "5"}, rows[1]]
    judged = json.loads(run("verify", write(others), "--json", code=1).stdout)
    assert judged["verdicts"] == {"accepted": 1, "rejected": 1}
    assert judged["rows"][0]["reasons"][0].startswith("other_completion: its text is '5'")


def test_proofs_are_built_anew(rows, write, tmp_path):
    bare = [row | {"proofs": b""} for row in rows]
    output = tmp_path / "new" / "proven.parquet"
    output.parent.mkdir()
    made = json.loads(run("build", write(bare), "-o", str(output), "--json").stdout)
    assert made["traces"] == made["changed"] == 3
    table = pq.read_table(output)
    assert table["signature"].null_count == table["transcript_hash"].null_count == 3
    assert run("verify", str(output)).stdout.strip() == "accepted: 3"
    assert "choose another" in run("build", write(bare), "-o", str(output), code=2).stderr
    same = tmp_path / "new" / "same.parquet"
    made = json.loads(run("build", str(output), "-o", str(same), "--json").stdout)
    assert made["changed"] == 0 and same.read_bytes() == output.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: [], "holds no traces"),
        (lambda rows: [*rows, rows[0]], "more than once"),
        (lambda rows: [rows[0], rows[1] | {"model": "other"}], "2 models"),
        (lambda rows: [rows[0] | {"model": "tracemill/nano-x"}], "did you mean"),
        (lambda rows: [rows[0] | {"model_revision": "old"}], "is of model revision 'old'"),
        (lambda rows: [rows[0] | {"output_ids": [99999]}], "cannot be computed"),
    ],
    ids=["empty", "twice", "two models", "unknown model", "revision", "tokens"],
)
def test_files_that_cannot_be_proven_exit_2(rows, write, tmp_path, change, message):
    file = write(change(rows))
    assert message in run("build", file, "-o", str(tmp_path / "out"), code=2).stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_no_file_of_traces_exits_2(command, tmp_path):
    assert "does not exist" in run(command, str(tmp_path / "no.parquet"), code=2).stderr
    (tmp_path / "bad.parquet").write_bytes(b"PAR1junk")
    assert "not readable" in run(command, str(tmp_path / "bad.parquet"), code=2).stderr
