"""The validator service over HTTP: what it lets in, and what it answers for real uploads."""

import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_contracts import generate as contract
from data_contracts.text import table_from_rows
from infra.storage import read_table
from infra.storage.parquet import parquet_bytes
from toploc.signing import SigningKey
from toploc.transcript import Transcript

# Each test starts the service with its model in a process of its own.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
MODEL = "tracemill/nano-s"
TOKEN = "a-token-of-the-tests-0123456789"
KEY = SigningKey(bytes(range(32)))
SECONDS = 240
TRAVERSALS = (
    "../x", "u/../u/honest", "%2e%2e/u/honest", "u/%2e%2e/u/honest", "..%2fu/honest", "/etc/x",
    "u//honest", "u/./honest", "u%5chonest", "u/honest%00", "u/honest%0a", "",
)  # fmt: skip


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Service:
    """`tracemill validator serve` in a process of its own."""

    def __init__(self, root: str, state: Path, log: Path):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._command = [
            sys.executable, "-m", "flows.cli", "validator", "serve", "--model", MODEL,
            "--root", root, "--port", str(self.port), "--state", str(state),
        ]  # fmt: skip
        self._env = os.environ | {"TRACEMILL_VALIDATOR_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
        self._log = log
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=60,
        )

    def start(self) -> "Service":
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._env, stdout=log, stderr=log
            )
        self.wait(lambda: self._health() is not None)
        return self

    def _health(self) -> httpx.Response | None:
        try:
            return self.client.get("/health")
        except httpx.TransportError:
            return None

    def wait(self, condition) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)

    def trigger(self, name: str, sha: str, address: str) -> httpx.Response:
        return self.client.post(f"/validate/{name}", json={"file_sha": sha, "address": address})

    def raw(self, method: str, path: str, sha: str) -> int:
        """The answer to a path that no client has cleaned up."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        body = json.dumps({"file_sha": sha, "address": KEY.node_id})
        connection.request(method, path, body, headers)
        return connection.getresponse().status

    def result(self, name: str, path: str = "status") -> dict:
        answers: list[dict] = []

        def done() -> bool:
            answers.append(self.client.get(f"/{path}/{name}").raise_for_status().json())
            return answers[-1]["status"] != "pending"

        self.wait(done)
        return answers[-1]

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


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


@pytest.fixture
def service(planned, tmp_path):
    made = Service(planned.root, tmp_path / "state", tmp_path / "service.log")
    yield made.start()
    if made.process.poll() is None:
        made.stop()


def other(token: int) -> int:
    return token % 200 + 1


def test_uploads_are_judged_and_requests_of_strangers_are_not(service, rows, upload, planned):
    address = KEY.node_id
    changed = [signed(rows[0], output_ids=[other(t) for t in rows[0]["output_ids"]]), rows[1]]
    unsigned = [rows[0] | {"logprobs": [x - 1 for x in rows[0]["logprobs"]]}, rows[1]]
    cases = {
        "u/honest.parquet": (rows, "accept", None),
        "u/changed.parquet": (changed, "reject", "margin"),
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
        assert service.raw("POST", f"/validate/{bad}.parquet", shas[name]) in (400, 404), bad
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


def test_kill_9_in_the_middle_loses_nothing(planned, tmp_path, rows, upload):
    service = Service(planned.root, tmp_path / "state", tmp_path / "service.log").start()
    files = [upload(f"u/{number}.parquet", rows) for number in range(12)]
    for name, sha in files:
        assert service.trigger(name, sha, KEY.node_id).status_code == 200
    statuses = [service.client.get(f"/status/{name}").json()["status"] for name, _ in files]
    assert "pending" in statuses
    service.kill()

    again = Service(planned.root, tmp_path / "state", tmp_path / "service.log").start()
    assert [again.result(name)["status"] for name, _ in files] == ["accept"] * len(files)
    again.stop()


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
