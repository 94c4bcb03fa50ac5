"""Publishing: whole versions, growing numbers, a few of them kept."""

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from infra.broadcast import service
from infra.broadcast.errors import NothingToPublish, OpenOrigin, VersionGoesBack, VersionTaken
from infra.broadcast.hosts import check_open
from infra.pool.service.limits import BoundedHttp


def test_the_newest_versions_stay(origin, weights):
    for number in (0, 1, 2, 5):
        origin.publish(number, weights(number))
    assert origin.versions() == [1, 2, 5]
    assert sorted(os.listdir(origin.root)) == ["1", "2", "5"]


def test_a_version_is_published_once(origin, weights):
    source = weights(4)
    first = origin.publish(4, source)
    assert origin.publish(4, source) == first
    with pytest.raises(VersionTaken):
        origin.publish(4, weights(5))


def test_versions_only_grow(origin, weights):
    origin.publish(4, weights(4))
    with pytest.raises(VersionGoesBack, match="at least 5"):
        origin.publish(3, weights(3))
    assert origin.versions() == [4]


def test_what_a_killed_publisher_left_is_no_version_and_goes(origin, weights):
    origin.publish(0, weights(0))
    left = origin.root / ".tmp-1"
    left.mkdir()
    (left / "shard_00000.bin").write_bytes(b"half")
    assert origin.versions() == [0]
    origin.publish(1, weights(1))
    assert sorted(os.listdir(origin.root)) == ["0", "1"]


def test_a_model_is_published_without_what_else_lies_there(origin, weights):
    source = weights(0)
    files = sorted(os.listdir(source))
    for name in (".gitattributes", ".hidden.json", "README.md", "pytorch_model.bin", "weights.pt"):
        (source / name).write_bytes(b"x")
    (source / "onnx").mkdir()
    (source / "onnx" / "model.safetensors").write_bytes(b"x")
    (source / "folder.json").mkdir()
    assert [file.name for file in origin.publish(0, source).files] == files


def test_what_holds_no_model_is_no_version(origin, tmp_path):
    (tmp_path / "nothing").mkdir()
    (tmp_path / "pickle").mkdir()
    (tmp_path / "pickle" / "pytorch_model.bin").write_bytes(b"x")
    for name in ("nothing", "pickle", "absent"):
        with pytest.raises(NothingToPublish, match="nothing of a model"):
            origin.publish(0, tmp_path / name)
    assert origin.versions() == []


PUBLISH_WITH_LITTLE_ROOM = """
import resource, signal, sys
from pathlib import Path
from infra.broadcast.errors import DiskFull
from infra.broadcast.origin import Origin
from toploc.signing import SigningKey
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
try:
    Origin(Path(sys.argv[1]), "run", SigningKey(b"k" * 32), 3, 16384).publish(1, Path(sys.argv[2]))
except DiskFull as error:
    sys.exit(0 if error.retryable else 3)
"""


def test_a_full_disk_publishes_nothing_and_leaves_nothing(origin, weights):
    origin.publish(0, weights(0))
    source = weights(1)
    command = [sys.executable, "-c", PUBLISH_WITH_LITTLE_ROOM, str(origin.root), str(source)]
    assert subprocess.run(command, timeout=120).returncode == 0
    assert sorted(os.listdir(origin.root)) == ["0"]
    origin.publish(1, source)
    assert origin.versions() == [0, 1]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org"])
def test_strangers_need_a_token(host):
    with pytest.raises(OpenOrigin):
        check_open(host, "")
    check_open(host, "secret")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_this_machine_needs_none(host):
    check_open(host, "")


def test_an_origin_is_called_what_its_clients_know_it_by(origin, monkeypatch):
    public = "http://weights.example:8500"
    with pytest.raises(OpenOrigin), service.serving({"policy": origin.root}, url=public):
        pass
    monkeypatch.setenv("TRACEMILL_BROADCAST_TOKEN", "secret")
    with service.serving({"policy": origin.root}, url=public) as url:
        assert url == public


def test_a_connection_that_says_nothing_is_closed(origin, monkeypatch):
    monkeypatch.setattr(BoundedHttp, "head_seconds", 0.3)
    with service.serving({"policy": origin.root}) as url:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=60) as line, suppress(ConnectionResetError):
            assert line.recv(1) == b""


def test_a_client_that_stops_reading_does_not_keep_it_from_ending(origin, monkeypatch):
    monkeypatch.setattr(service, "END_SECONDS", 1)
    (origin.root / "0").mkdir()
    with open(origin.root / "0" / "shard_00000.bin", "wb") as shard:
        shard.truncate(1 << 28)  # more than a connection holds
    block = service.serving({"policy": origin.root})
    address = ("127.0.0.1", int(block.__enter__().rpartition(":")[2]))
    with socket.create_connection(address, timeout=60) as line:
        line.sendall(b"GET /policy/0/shard_00000.bin HTTP/1.1\r\nHost: origin\r\n\r\n")
        assert line.recv(100)
        ending = threading.Thread(target=block.__exit__, args=(None, None, None), daemon=True)
        ending.start()
        ending.join(30)
        assert not ending.is_alive()
