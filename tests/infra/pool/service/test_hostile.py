"""Hostile requests to the running service: each gets the right refusal, and changes nothing."""

import hashlib
import json
import socket
import time

import pytest

from infra.pool import signature
from infra.pool.client import PoolClient
from infra.pool.errors import RequestRefused
from infra.pool.signature import EPOCH, TIME
from infra.pool.wire import Heartbeat
from toploc.signing import SigningKey

BEAT = "/heartbeat"


def refused(answer, status, code):
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert (body["success"], body["code"]) == (False, code) and body["error"]


def test_replayed(service):
    node = service.node()
    request = node.signed("POST", BEAT, {"address": node.id})
    assert node.send(request).status_code == 200
    refused(node.send(request), 409, "NONCE_ALREADY_USED")


def test_reordered(service):
    node = service.node()
    early = node.signed("POST", BEAT, {"address": node.id, "progress": 0.1})
    time.sleep(0.005)
    late = node.signed("POST", BEAT, {"address": node.id, "progress": 0.2})
    assert node.send(late).status_code == 200
    refused(node.send(early), 409, "OUT_OF_ORDER")


def test_forged(service):
    victim, forger = service.node(), service.node()
    method, url, headers, data = forger.signed("POST", BEAT, {"address": victim.id})
    refused(forger.send((method, url, headers, data)), 403, "OTHER_NODE")
    method, url, headers, data = forger.signed("POST", BEAT, {"address": victim.id})
    headers[signature.NODE] = victim.id
    refused(forger.send((method, url, headers, data)), 401, "SIGNATURE_MISMATCH")
    other_body = json.dumps({"address": victim.id, "progress": 1.0}).encode()
    for change in (
        lambda m, u, h, d: (m, u, h, other_body),
        lambda m, u, h, d: (m, f"{u}?x=1", h, d),
        lambda m, u, h, d: (m, "/nodes/leave", h, d),
        lambda m, u, h, d: (m, u, h | {TIME: str(int(h[TIME]) + 1)}, d),
        lambda m, u, h, d: (m, u, h | {signature.NONCE: "0" * 32}, d),
        lambda m, u, h, d: (m, u, h | {signature.SIGNATURE: "0" * 128}, d),
    ):
        request = change(*victim.signed("POST", BEAT, {"address": victim.id}))
        refused(victim.send(request), 401, "SIGNATURE_MISMATCH")
    request = victim.signed("POST", BEAT, {"address": victim.id})
    refused(victim.send(("PUT", *request[1:])), 405, "HTTP_405")
    for name in (signature.NODE, signature.SIGNATURE, TIME, EPOCH):
        method, url, headers, data = victim.signed("POST", BEAT, {"address": victim.id})
        del headers[name]
        refused(victim.send((method, url, headers, data)), 401, "BAD_SIGNATURE_HEADERS")


def test_out_of_time_and_epoch(service, monkeypatch):
    node, now = service.node(), time.time_ns()
    for seconds in (-120, 120):
        with monkeypatch.context() as patch:
            patch.setattr(signature.time, "time_ns", lambda s=seconds: now + s * 10**9)
            request = node.signed("POST", BEAT, {"address": node.id})
        refused(node.send(request), 401, "REQUEST_EXPIRED")
    node.epoch = "0" * 32
    answer = node.send(node.signed("POST", BEAT, {"address": node.id}))
    refused(answer, 401, "WRONG_EPOCH")
    assert answer.headers[EPOCH] == service.http.get("/epoch").json()["epoch"]


def test_a_nodes_clock_may_be_set_back_or_right(service, monkeypatch):
    node, now = service.node(), time.time_ns()
    client = PoolClient(str(service.http.base_url), key=node.key, patience=1.0)
    body = Heartbeat(address=node.id)
    for ahead, refused_with in ((50, ""), (0, ""), (120, "REQUEST_EXPIRED"), (0, "")):
        with monkeypatch.context() as patch:
            patch.setattr(signature.time, "time_ns", lambda s=ahead: now + s * 10**9)
            if refused_with:
                with pytest.raises(RequestRefused, match=refused_with):
                    client.call("POST", "/heartbeat", body)
            else:
                client.call("POST", "/heartbeat", body)
    client.close()


def test_strangers(service):
    node = service.node()
    stranger = type(node)(service)
    refused(stranger.request("POST", BEAT, {"address": stranger.id}), 403, "UNKNOWN_NODE")
    refused(stranger.request("PUT", "/nodes", {"id": stranger.id}), 403, "BAD_INVITE")
    body = {"id": stranger.id, "invite": "x" * 32}
    refused(stranger.request("PUT", "/nodes", body), 403, "BAD_INVITE")
    invite = service.ask("POST", "/invites", {"uses": 1})["invite"]
    body["invite"] = invite
    refused(stranger.request("PUT", "/nodes", body | {"id": node.id}), 403, "OTHER_NODE")
    assert stranger.request("PUT", "/nodes", body).status_code == 200
    late = type(node)(service)
    refused(late.request("PUT", "/nodes", body | {"id": late.id}), 403, "BAD_INVITE")


def test_banned(service):
    node = service.node()
    node.beat()
    service.ask("POST", f"/nodes/{node.id}/ban", {"reason": "it lied"})
    refused(node.request("POST", BEAT, {"address": node.id}), 403, "NODE_EXCLUDED")
    refused(node.request("PUT", "/nodes", {"id": node.id}), 403, "NODE_EXCLUDED")
    refused(node.request("GET", "/shards/x"), 403, "NODE_EXCLUDED")


def test_oversized(service):
    node = service.node()
    big = b" " * (2 << 20) + b"{}"
    refused(node.send(("POST", BEAT, node.signed("POST", BEAT)[2], big)), 413, "BODY_TOO_LARGE")
    with socket.create_connection(("127.0.0.1", service.port)) as raw:
        raw.sendall(b"POST /heartbeat HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999999999\r\n\r\n")
        assert raw.recv(64).startswith(b"HTTP/1.1 413")
    with socket.create_connection(("127.0.0.1", service.port)) as raw:
        raw.sendall(b"POST /heartbeat HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        answer = b""
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        try:
            for _ in range(4):
                raw.sendall(chunk)
        except OSError:
            pass
        answer = raw.recv(64)
        assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "begun",
    [b"POST /heartbeat HTTP/1.1\r\nx: ", b"POST /heartbeat HTTP/1.1\r\nhost: x\r\n"
     b"transfer-encoding: chunked\r\n\r\n0\r\nx: "],
    ids=["head", "trailer"],
)  # fmt: skip
def test_without_end(service, begun):
    with socket.create_connection(("127.0.0.1", service.port)) as raw:
        raw.settimeout(60)
        raw.sendall(begun)
        sent = 0
        with pytest.raises(ConnectionError):
            while sent < 64 << 20:
                raw.sendall(b"x" * (1 << 16))
                sent += 1 << 16
    service.ask("GET", "/health")


def test_slow(service):
    """A head, and a body, that do not arrive."""
    heads = (b"", b"POST /heartbeat HTTP/1.1\r\nhost: x\r\n", b"GET /health HTTP/1.1\r\n")
    lines = [socket.create_connection(("127.0.0.1", service.port)) for _ in heads]
    lines[-1].sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
    assert lines[-1].recv(4096).startswith(b"HTTP/1.1 200")
    for raw, head in zip(lines, heads, strict=True):
        raw.sendall(head)
    with socket.create_connection(("127.0.0.1", service.port)) as raw:
        raw.sendall(b"POST /heartbeat HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\nx")
        raw.settimeout(60)
        assert raw.recv(64).startswith(b"HTTP/1.1 408")
    for raw in lines:
        raw.settimeout(60)
        with pytest.raises((ConnectionError, EOFError)):
            while raw.recv(4096):
                pass
            raise EOFError
        raw.close()


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[" * 100_000,
        '{"address": "%s", "progress": NaN}',
        '{"address": "%s", "progress": 1e999}',
        '{"address": "%s", "unknown": 1}',
        '{"address": "%s", "version": "\\ud800"}',
        '{"address": "%s", "metrics": [{"key": {"label": "x"}, "value": Infinity}]}',
        '{"address": "../../etc"}',
    ],
)
def test_malformed(service, body):
    node = Malformed.node = Malformed.node or service.node()
    data = (body % node.id if "%s" in body else body).encode()
    headers = signature.sign_request(node.key, node.epoch, "POST", BEAT, "", data)
    headers["content-type"] = "application/json"
    assert node.send(("POST", BEAT, headers, data)).status_code == 400


class Malformed:
    node = None


def test_too_many(service):
    node = service.node()
    answered = 0
    while (answer := node.request("POST", "/nodes/orders/none", {})).status_code == 404:
        answered += 1
        assert answered < 1000
    assert answered >= 79
    refused(answer, 429, "RATE_LIMIT_EXCEEDED")
    assert int(answer.headers["retry-after"]) >= 1
    # Nobody else is held up, and nobody else can use a node's share up.
    assert service.node().beat()["group"] is None


def test_admin_only_with_the_key(service):
    for path in ("/tasks", "/nodes", "/groups", "/metrics/prometheus", "/invites"):
        assert service.http.get(path).status_code == 401
        headers = {"authorization": "Bearer " + "x" * 40}
        refused(service.http.get(path, headers=headers), 401, "BAD_ADMIN_KEY")
    node = service.node()
    refused(node.request("POST", f"/nodes/{node.id}/ban", {}), 401, "BAD_ADMIN_KEY")


def test_uploads(service):
    """Names that lead elsewhere, other bytes, other sizes, other people's grants."""
    task = service.task("uploads", shards=2)
    node, thief = service.node(), service.node()
    group = node.group()
    shard = node.shard(group)
    data = b"rows" * 1000
    ask = {
        "file_name": "part.parquet",
        "file_size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "task_id": task,
        "shard_id": shard,
    }
    route = "/storage/request-upload"
    for name in (
        "../../ledger/0.json",
        "a/b",
        "..",
        ".hidden",
        "/etc/passwd",
        "a\\b",
        "a\0b",
        "${X}",
    ):
        answer = node.request("POST", route, ask | {"file_name": name})
        refused(answer, 400, "BAD_FILE_NAME")
    refused(node.request("POST", route, ask | {"file_size": 101 << 20}), 413, "BODY_TOO_LARGE")
    refused(node.request("POST", route, ask | {"task_id": "none"}), 404, "NOT_FOUND")
    refused(type(node).request(service.node(), "POST", route, ask), 403, "NOT_YOUR_TASK")

    grant = node.ask("POST", route, ask)
    assert grant["file_name"].startswith("uploads/") and grant == node.ask("POST", route, ask) | {
        "signed_url": grant["signed_url"]
    }
    refused(node.request("POST", route, ask | {"sha256": "0" * 64}), 409, "OTHER_BYTES")
    put = service.http.put
    url, file = grant["signed_url"], {"name": grant["file_name"], "sha256": ask["sha256"]}
    file["size"] = len(data)
    result = {"group_id": group["group_id"], "files": [file]}
    path = f"/shards/{shard}/result"
    refused(node.request("POST", path, result), 409, "NOT_UPLOADED")
    refused(put(url, content=b"lies" * 1000), 409, "OTHER_SHA256")
    refused(put(url, content=data + b"x"), 413, "BODY_TOO_LARGE")
    refused(put(url, content=data[:-1]), 409, "OTHER_SIZE")
    refused(put(url[:-9] + "AAAAAAAAA", content=data), 403, "BAD_UPLOAD_URL")
    refused(put(service.url + "/storage/objects/x", content=data), 403, "BAD_UPLOAD_URL")
    assert not (service.root / grant["file_name"]).exists()
    assert put(url, content=data).status_code == 200
    assert put(url, content=data).status_code == 200, "the same again is no fault"

    other = result | {"files": [file | {"sha256": "0" * 64}]}
    refused(node.request("POST", path, other), 409, "OTHER_BYTES")
    other = result | {"files": [file | {"name": "ledger/000000000000.json"}]}
    refused(node.request("POST", path, other), 409, "NOT_GRANTED")
    group2 = thief.group()
    other = result | {"group_id": group2["group_id"]}
    refused(thief.request("POST", path, result), 409, "NO_LEASE")
    refused(thief.request("POST", path, other), 409, "NO_LEASE")
    refused(thief.request("GET", f"/shards/{shard}"), 409, "NO_LEASE")
    # The object itself is looked at, not what was promised of it.
    stored = service.root / grant["file_name"]
    stored.write_bytes(b"lies" * 1000)
    refused(node.request("POST", path, result), 409, "OTHER_SHA256")
    stored.write_bytes(data)
    node.ask("POST", path, result)
    node.ask("POST", path, result)
    rows = service.ask("GET", f"/tasks/{task}/results")["results"]
    assert [(row["shard_id"], row["state"]) for row in rows] == [(shard, "submitted")]


@pytest.mark.parametrize("depth", [65, 220, 300, 450])
def test_a_result_that_could_not_be_read_back_is_refused(service, depth):
    """pydantic writes 255 levels and reads some 200: the row would stop readers and the service."""
    task = service.task(f"deep-{depth}", shards=1)
    node = service.node()
    group = node.group()
    shard = node.shard(group)
    body, deep = {"group_id": group["group_id"], "output": {"a": 1}}, {}
    for _ in range(depth):
        deep = {"a": deep} if depth % 2 else {"a": [deep]}
    refused(
        node.request("POST", f"/shards/{shard}/result", body | {"output": deep}),
        400,
        "INVALID_BODY",
    )
    node.ask("POST", f"/shards/{shard}/result", body)
    rows = service.ask("GET", f"/tasks/{task}/results")["results"]
    assert [row["output"] for row in rows] == [{"a": 1}]


def test_an_id_for_peers_is_no_option_and_no_variable(service):
    """It is put into the neighbour's command, where ${WORKER_P2P_SEED} is that node's secret."""
    node = service.node(worker_p2p_id="/ip4/10.0.0.1/tcp/4002/p2p/12D3KooW")
    for wrong in ("--trust", "${WORKER_P2P_SEED}.evil.org", "a b", "a;b", "$(x)", "a\n", "é"):
        refused(
            node.request("POST", BEAT, {"address": node.id, "p2p_id": wrong}), 400, "INVALID_BODY"
        )
        refused(
            node.request("PUT", "/nodes", {"id": node.id, "worker_p2p_id": wrong}),
            400,
            "INVALID_BODY",
        )
    node.beat(p2p_id="[fd00::1]:4002")


def test_tasks_that_cannot_be(service):
    base = {"name": "bad", "image": "x"}

    def scheduled(name):
        return {"scheduling_config": {"plugins": {"node_groups": {"allowed_topologies": [name]}}}}

    for more in (
        {"storage_config": {"file_name_template": "../x-${CURRENT_FILE_INDEX}"}},
        {"storage_config": {"file_name_template": "/x"}},
        {"storage_config": {"file_name_template": "x-${NODE_SECRET}"}},
        {"volume_mounts": [{"host_path": "/x/${GROUP_SECRET}", "container_path": "/y"}]},
        {"volume_mounts": [{"host_path": "", "container_path": "/y"}]},
        scheduled("no-such"),
        scheduled("0x5GB"),
        {"scheduling_config": {"plugins": {"unknown": {}}}},
        {"surprise": 1},
    ):
        assert service.ask("POST", "/tasks", base | more, status=400)["success"] is False
    service.task("taken")
    service.ask("POST", "/tasks", {"name": "taken", "image": "other"}, status=400)
    service.ask("DELETE", "/tasks/none", status=404)
    refused(
        service.admin("POST", "/tasks/..%2f..%2fx/shards", json={"shards": []}), 404, "HTTP_404"
    )
    assert SigningKey.generate().node_id not in service.admin("GET", "/nodes").text
