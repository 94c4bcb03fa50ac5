"""The HTTP side of the validator service, before any model: who may ask what."""

import json
import time

import pytest
from fastapi.testclient import TestClient

from infra.storage import Store
from tasks.validate.service import QueueWorker, make_app
from tasks.validate.service_queue import WorkQueue

TOKEN = "a-token-of-the-tests-0123456789"
SHA = "ab" * 32
BODY = {"file_sha": SHA, "address": "n"}
GROUP = {"file_shas": [SHA, SHA], "group_id": "00aa", "file_number": 7, "group_size": 2}


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(str(tmp_path / "data"))
    for name in ("u/a.parquet", "u/g-00aa-2-7-0.parquet", "u/g-00aa-2-7-1.parquet", "u/a.txt"):
        store.write_bytes(name, b"x")
    (tmp_path / "secret.parquet").write_bytes(b"x")
    return store


@pytest.fixture
def queue(tmp_path):
    made = WorkQueue(tmp_path / "state" / "queue.sqlite")
    yield made
    made.close()


def client_of(queue, store, token=TOKEN, given=TOKEN) -> TestClient:
    worker = QueueWorker(queue, lambda: lambda work: {"status": "accept"})
    app = make_app(queue, worker, store, {"model": "m"}, token)
    return TestClient(app, headers={"Authorization": f"Bearer {given}"} if given else {})


@pytest.fixture
def client(queue, store) -> TestClient:
    return client_of(queue, store)


def test_a_trigger_is_queued_once_and_its_status_is_pending_until_there_is_an_answer(client, queue):
    for _ in range(2):
        assert client.post("/validate/u/a.parquet", json=BODY).json() == {"status": "pending"}
    assert client.get("/status/u/a.parquet").json() == {"status": "pending"}
    work = queue.take(0)
    assert (work.name, work.request) == ("file:u/a.parquet", BODY) and queue.take(0) is None
    queue.finish(work, {"status": "reject", "reason": "r", "output_flops": 1.0})
    assert client.get("/status/u/a.parquet").json()["reason"] == "r"
    assert client.post("/validate/u/a.parquet", json=BODY).json() == {"status": "reject"}
    assert queue.take(0) is None


@pytest.mark.parametrize("given", ["", "wrong", TOKEN[:-1], TOKEN + "x"])
def test_without_the_token_nothing_is_told_or_queued(queue, store, given):
    client = client_of(queue, store, given=given)
    assert client.post("/validate/u/a.parquet", json=BODY).status_code == 401
    assert client.post("/validategroup/u/g-00aa-2-7.parquet", json=GROUP).status_code == 401
    for path in ("status/u/a.parquet", "statusgroup/u/g-00aa-2-7.parquet", "metrics"):
        assert client.get(f"/{path}").status_code == 401
    assert queue.counts() == {}
    assert client.get("/health").status_code == 503
    assert client_of(queue, store, token="", given=given).get("/metrics").status_code == 200


@pytest.mark.parametrize(
    "name",
    ["../secret", "%2e%2e/secret", "u/%2e%2e/%2e%2e/secret", "..%2fsecret", "/etc/x", "u//a",
     "u/%2e/a", "u%5ca", "u/a%00", "u/a%0a", "", "x" * 600],
)  # fmt: skip
def test_a_name_cannot_lead_out_of_the_root(client, queue, name):
    answer = client.post(f"/validate/{name}.parquet", json=BODY)
    assert answer.status_code in (400, 404), answer.text
    assert queue.counts() == {}


def test_what_is_not_there_or_not_a_trace_file_is_refused(client, queue):
    assert client.post("/validate/u/b.parquet", json=BODY).status_code == 404
    assert client.post("/validate/u/a.txt", json=BODY).status_code == 400
    assert client.get("/status/u/b.parquet").status_code == 404
    assert queue.counts() == {}


def test_another_hash_or_address_under_a_known_name_is_a_conflict(client):
    assert client.post("/validate/u/a.parquet", json=BODY).status_code == 200
    for change in ({"file_sha": "cd" * 32}, {"address": "other"}):
        answer = client.post("/validate/u/a.parquet", json=BODY | change)
        assert answer.status_code == 409 and SHA in answer.text


@pytest.mark.parametrize(
    "body",
    [b"", b"[" * 5000, b"null", json.dumps(BODY | {"more": 1}).encode(),
     json.dumps(BODY | {"file_sha": SHA.upper()}).encode(),
     json.dumps(BODY | {"file_sha": SHA + "\n"}).encode(),
     json.dumps({"file_sha": SHA}).encode()],
)  # fmt: skip
def test_a_body_that_is_not_the_one_is_refused(client, queue, body):
    assert client.post("/validate/u/a.parquet", content=body).status_code == 422
    assert queue.counts() == {}


def test_a_long_body_is_refused_unread(client):
    assert client.post("/validate/u/a.parquet", content=b"x" * 70_000).status_code == 413


def test_a_group_is_triggered_by_the_name_of_the_whole(client, queue):
    name = "u/g-00aa-2-7.parquet"
    assert client.post(f"/validategroup/{name}", json=GROUP).json() == {"status": "pending"}
    found = client.get(f"/statusgroup/{name}").json()
    assert found == {"status": "pending", "failing_indices": []}
    work = queue.take(0)
    queue.finish(work, {"status": "reject", "failing_indices": [1]})
    assert client.get(f"/statusgroup/{name}").json()["failing_indices"] == [1]
    for change in (
        {"group_id": "00ab"},
        {"group_size": 3},
        {"file_number": 8},
        {"file_shas": [SHA]},
    ):
        assert client.post(f"/validategroup/{name}", json=GROUP | change).status_code == 422
    lacking = "u/h-00aa-2-7.parquet"
    assert client.post(f"/validategroup/{lacking}", json=GROUP).status_code == 404


def test_the_worker_answers_what_is_queued_and_a_crash_is_tried_again(queue, store):
    tries = []

    def answer(work):
        tries.append(work.attempts)
        if len(tries) < 3:
            raise RuntimeError("out of memory")
        return {"status": "accept"}

    queue.trigger("file:u/a.parquet", BODY)
    worker = QueueWorker(queue, lambda: answer)
    client = TestClient(
        make_app(queue, worker, store, {}, TOKEN), headers={"Authorization": f"Bearer {TOKEN}"}
    )
    worker.start()
    for _ in range(600):
        if client.get("/status/u/a.parquet").json()["status"] != "pending":
            break
        time.sleep(0.1)
    assert client.get("/status/u/a.parquet").json()["status"] == "accept"
    assert tries == [1, 2, 3]
    assert client.get("/health").json()["state"] == "ready"
    assert 'tracemill_validator_requests{state="accept"} 1' in client.get("/metrics").text
