"""The validator service over HTTP: what it lets in, and what it answers for real uploads."""

import hashlib
import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from service_process import MODEL, ROOT, SECONDS, TOKEN

from data_contracts import generate as contract
from data_contracts.text import table_from_rows
from infra.inference.prompts import ChatTokenizer
from infra.models.registry import materialise
from infra.storage import read_table
from infra.storage.parquet import parquet_bytes
from tasks.generate.ingest import completion_text
from toploc.signing import SigningKey
from toploc.transcript import Transcript

# Each test starts the service with its model in a process of its own.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

KEY = SigningKey(bytes(range(32)))
TRAVERSALS = (
    "../x", "u/../u/honest", "%2e%2e/u/honest", "u/%2e%2e/u/honest", "..%2fu/honest", "/etc/x",
    "u//honest", "u/./honest", "u%5chonest", "u/honest%00", "u/honest%0a", "",
)  # fmt: skip


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def rows(planned, generator, shards) -> list[dict]:
    """Honest traces as their node uploads them, signed with a key of the tests."""
    generator.run(shards[0])
    rows = read_table(planned, generator.run(shards[1]).path).to_pylist()
    return [signed(row) for row in rows]


def signed(row: dict, **changes) -> dict:
    row = row | {"node_id": KEY.node_id} | changes
    row["transcript_hash"], row["signature"] = Transcript.of_row(row).sign(KEY)
    return row


@pytest.fixture
def upload(planned):
    """Write an upload; gives the name and its sha256."""

    def write(name: str, rows_or_bytes) -> tuple[str, str]:
        data = rows_or_bytes
        if isinstance(data, list):
            data = parquet_bytes(table_from_rows(data, contract.SCHEMA))
        planned.write_bytes(name, data, overwrite=True)
        return name, sha256(data)

    return write


def other(token: int) -> int:
    return token % 200 + 1


def test_uploads_are_judged_and_requests_of_strangers_are_not(service, rows, upload, planned):
    address = KEY.node_id
    tokenizer = ChatTokenizer(materialise(MODEL), MODEL)
    changed = []
    for row in rows:
        tokens = [other(t) for t in row["output_ids"]]
        stop = json.loads(row["sampling"])["stop"]
        text = completion_text(tokenizer, row["prompt_ids"], tokens, stop)
        changed.append(signed(row, output_ids=tokens, completion=text))
    # The text is not signed: all that the node signed is right here.
    texts = [row | {"completion": "5"} for row in rows]
    unsigned = [rows[0] | {"logprobs": [x - 1 for x in rows[0]["logprobs"]]}, rows[1]]
    cases = {
        "u/honest.parquet": (rows, "accept", None),
        # Limits refuse an honest trace, too, once in a long time; not one after another.
        "u/once.parquet": ([changed[0], *rows[1:]], "unknown", "error_mean"),
        "u/changed.parquet": (changed, "reject", "error_mean"),
        "u/texts.parquet": (texts, "reject", "other_completion"),
        "u/unsigned.parquet": (unsigned, "reject", "transcript_mismatch"),
        "u/garbage.parquet": (b"PAR1" + b"\0" * 4000 + b"PAR1", "reject", "unreadable"),
        "u/columns.parquet": (_other_columns(), "reject", "columns"),
        "u/weights.parquet": ([signed(row, model_revision="0" * 32) for row in rows],
                              "reject", "other_model_revision"),
    }  # fmt: skip
    shas = {}
    for name, (content, _, _) in cases.items():
        shas[name] = upload(name, content)[1]
        assert service.trigger(name, shas[name], address).status_code == 200
    upload("u/swapped.parquet", rows)
    assert service.trigger("u/swapped.parquet", "0" * 64, address).status_code == 200
    upload("u/foreign.parquet", rows)
    assert service.trigger("u/foreign.parquet", shas["u/honest.parquet"], "0" * 64).is_success

    # Asked in between: who may ask what.
    client, name = service.client, "u/honest.parquet"
    for given in ("Bearer", "Bearer wrong", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", TOKEN, "ü"):
        headers = {"Authorization": given.encode()}
        for path in (f"/status/{name}", f"/statusgroup/{name}", "/metrics"):
            assert client.get(path, headers=headers).status_code == 401, (given, path)
        for path in (f"/validate/{name}", f"/validategroup/{name}"):
            assert client.post(path, headers=headers).status_code == 401, (given, path)
    for bad in TRAVERSALS:
        body = json.dumps({"file_sha": shas[name], "address": address})
        assert service.raw("POST", f"/validate/{bad}.parquet", body) in (400, 404), bad
    assert service.trigger("u/honest.txt", shas[name], address).status_code == 400
    assert service.trigger("u/nothing.parquet", "0" * 64, address).status_code == 404
    assert client.get("/status/u/nothing.parquet").status_code == 404
    assert service.trigger(name, "1" * 64, address).status_code == 409
    assert service.trigger(name, shas[name], "another").status_code == 409
    assert service.trigger(name, "no sha", address).status_code == 422
    assert client.post(f"/validate/{name}", content=b"x" * 100_000).status_code == 413
    assert client.post(f"/validate/{name}", content=b"[" * 1000).status_code == 422

    for name, (_, status, reason) in cases.items():
        found = service.result(name)
        assert found["status"] == status, (name, found)
        assert reason is None or reason in found["reason"], (name, found)
    honest = service.result("u/honest.parquet")
    assert honest["verdicts"] == {"accepted": len(rows)} and honest["reason"] is None
    assert honest["output_flops"] > 0 and honest["input_flops"] > 0
    assert "other_sha256" in service.result("u/swapped.parquet")["reason"]
    assert "other_node" in service.result("u/foreign.parquet")["reason"]
    # The same again changes nothing.
    assert service.trigger("u/honest.parquet", shas["u/honest.parquet"], address).json() == {
        "status": "accept"
    }
    assert client.get("/health").json()["state"] == "ready"
    assert 'state="accept"} 1' in client.get("/metrics").text


def _other_columns() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"trace_id": ["x"]}), sink)
    return bytes(sink.getvalue())


def test_kill_9_in_the_middle_loses_nothing(service, rows, upload):
    files = [upload(f"u/{number}.parquet", rows) for number in range(12)]
    for name, sha in files:
        assert service.trigger(name, sha, KEY.node_id).status_code == 200
    statuses = [service.client.get(f"/status/{name}").json()["status"] for name, _ in files]
    assert "pending" in statuses
    service.kill()
    service.start()
    assert [service.result(name)["status"] for name, _ in files] == ["accept"] * len(files)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "not loopback"),
        (["--token-file", "{short}"], "at least 16"),
        (["--state", "{root}/state"], "below the root"),
    ],
    ids=["open", "short token", "queue in storage"],
)
def test_it_does_not_start_open_or_guessable(planned, tmp_path, arguments, message):
    short = tmp_path / "token"
    short.write_text("secret")
    root = planned.local_path("x").parent
    given = [part.format(short=short, root=root) for part in arguments]
    state = [] if "--state" in given else ["--state", str(tmp_path / "state")]
    env = {key: value for key, value in os.environ.items() if key != "TRACEMILL_VALIDATOR_TOKEN"}
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "validator", "serve", "--model", MODEL,
         "--root", str(root), *state, *given],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
