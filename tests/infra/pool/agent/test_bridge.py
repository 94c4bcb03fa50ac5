"""The socket between a task and its agent: figures, files, and what a task must not reach."""

import hashlib
import json
import os
import socket
import time

import pytest

from infra.pool.agent.bridge import Bridge


@pytest.fixture
def made(tmp_path):
    data, uploads = tmp_path / "data", []
    data.mkdir()
    bridge = Bridge(
        tmp_path / "s", "task", data, lambda content, name: uploads.append((name, content))
    )
    yield bridge, data, uploads
    bridge.close()
    assert not bridge.path.exists()


def say(bridge: Bridge, *objects: object, raw: bytes = b"") -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(bridge.path))
        connection.sendall(raw + b"".join(json.dumps(item).encode() for item in objects))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)


def figures(bridge: Bridge) -> dict[str, float]:
    return {metric.key.label: metric.value for metric in bridge.metrics()}


def test_figures_come_in_one_after_the_other_and_only_numbers_count(made):
    bridge, _, _ = made
    said = {"task_id": "task", "tokens": 5, "ok": True, "x" * 201: 1, "loss": 0.5}
    say(bridge, said, {"tokens": 9, "huge": float("inf")})
    assert figures(bridge) == {"tokens": 9.0, "loss": 0.5}
    say(bridge, raw=b"not json at all")
    say(bridge, [1, 2], "text", {"later": 1})
    assert figures(bridge)["later"] == 1.0


def test_an_object_may_arrive_in_pieces(made):
    bridge, _, _ = made
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(bridge.path))
        for piece in (b'{"tok', b'ens": 3', b"} {"):
            connection.sendall(piece)
            time.sleep(0.02)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
    assert figures(bridge) == {"tokens": 3.0}


def told(path: str, content: bytes) -> dict[str, str]:
    return {"output/save_path": path, "output/sha256": hashlib.sha256(content).hexdigest()}


def test_a_file_of_its_own_is_uploaded_and_no_other(made, tmp_path):
    bridge, data, uploads = made
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (data / "out").mkdir()
    (data / "out" / "a.parquet").write_bytes(b"rows")
    (data / "link").symlink_to(secret)
    (data / "directory").symlink_to(tmp_path)
    os.mkfifo(data / "pipe")
    say(bridge, told("/data/out/a.parquet", b"rows"), told("out/a.parquet", b"rows"))
    assert uploads == [("a.parquet", b"rows")] * 2
    for path in ("/data/../secret", str(secret), "/data/link", "/data", "/data/none", "../secret",
                 "/data/directory/secret", "/data/pipe"):  # fmt: skip
        say(bridge, told(path, b"secret"))
    say(bridge, told("/data/out/a.parquet", b"other bytes"))
    assert len(uploads) == 2
