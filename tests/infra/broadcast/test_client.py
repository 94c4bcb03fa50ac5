"""A version appears whole and verified, or not at all, whatever the origin does."""

import os
import shutil
import subprocess
import sys
import threading
import time

import httpx
import pytest
from faulty import Faults, faulty

from infra.broadcast.errors import (
    BadManifest,
    CorruptShard,
    DiskFull,
    NoVersion,
    OriginFault,
    TooSlow,
    VersionGone,
)
from infra.broadcast.manifest import TOKEN_VARIABLE, File, Manifest, Shard
from infra.broadcast.origin import Origin
from infra.broadcast.service import serving
from infra.storage.local import directory_lock
from toploc.signing import SigningKey

STREAM = "run"
KEY = SigningKey(b"k" * 32)
SIZE = 100_013
"""Bytes of a version of `weights`."""
SHARD = 16_384


def missing(client) -> int:
    """Bytes of a version that have not come yet."""
    return SIZE - sum(path.stat().st_size for path in client.directory.rglob("*.bin"))


def asked(faults: Faults) -> int:
    """Bytes that the requests asked for."""
    ends = {f"1/shard_{n:05}.bin": min(SHARD, SIZE - n * SHARD) for n in range(7)}
    return sum(ends[name] - first for name, first in faults.ranges)


def test_the_newest_version_of_a_range_comes_whole(origin, weights, client_of, same):
    sources = {number: weights(number) for number in range(3)}
    for number, source in sources.items():
        origin.publish(number, source)
    with serving({STREAM: origin.root}) as url:
        client = client_of(url)
        for least, most, expected in ((0, 9, 2), (0, 1, 1), (1, 1, 1)):
            version = client.newest(least, most, 20)
            assert version.number == expected
            assert same(version, sources[expected])
        with pytest.raises(NoVersion):
            client.newest(3, 9, 0.1)


def test_a_version_of_another_publisher_is_not_taken(origin, weights, client_of, same, tmp_path):
    """Both call their stream the same, and the machine works for both."""
    mine, theirs = weights(1), weights(2)
    other = Origin(tmp_path / "other", STREAM, SigningKey(b"o" * 32), keep=3)
    origin.publish(1, mine)
    other.publish(1, theirs)
    with serving({STREAM: other.root}) as url:
        assert same(client_of(url, publisher=other.publisher).newest(0, 9, 20), theirs)
    with serving({STREAM: origin.root}) as url:
        assert same(client_of(url).fetch(1, 20), mine)


def test_old_versions_go(origin, weights, client_of):
    with serving({STREAM: origin.root}) as url:
        client = client_of(url, keep=2)
        for number in range(4):
            origin.publish(number, weights(number, size=1000))
            client.newest(0, 9, 20)
        assert client.here() == [2, 3]
        assert sorted(os.listdir(client.directory)) == ["2", "3"]
        with pytest.raises(VersionGone):
            client.fetch(0, 5)
        client.fetch(1, 5)  # an older one that is asked for by number comes, and stays
        assert client.here() == [1, 2, 3]


def test_streams_that_nobody_uses_go_when_another_is_begun(origin, weights, client_of, same):
    source = weights(0)
    origin.publish(0, source)
    with serving({STREAM: origin.root}) as url:
        client = client_of(url)
        client.fetch(0, 20)
        streams = {}
        for name in ("old", "fetching", "new", ".tmp-left"):
            streams[name] = client.directory.with_name(name)
            (streams[name] / "0").mkdir(parents=True)
        for old in (client.directory, streams["old"], streams["fetching"], streams[".tmp-left"]):
            os.utime(old, (0, 0))
        with directory_lock(streams["fetching"]):
            assert client.newest(0, 9, 20).number == 0  # in use from now on
            client_of(url, publisher="another")
        found = sorted(path.name for path in client.directory.parent.iterdir())
        assert found == ["fetching", "new", STREAM]
        shutil.rmtree(client.directory)  # who comes back after a day fetches again
        assert same(client.newest(0, 9, 20), source)


def test_nothing_but_versions_is_served(origin, weights, tmp_path, monkeypatch):
    origin.publish(0, weights(0))
    (tmp_path / "secret").write_text("s")
    (origin.root / "0" / "notes.txt").write_text("n")
    names = [
        "/run/0/..%2f..%2fsecret", "/run/0/notes.txt", "/run/../secret", "/other/versions",
        "/run/-1/manifest.json", "/run/0/.tmp", "/", "/docs", "/run/00/manifest.json%00",
    ]  # fmt: skip
    with serving({STREAM: origin.root}) as url:
        for name in names:
            assert httpx.get(url + name).status_code in (404, 422), name
    monkeypatch.setenv(TOKEN_VARIABLE, "t0ken")
    with serving({STREAM: origin.root}) as url:
        assert httpx.get(f"{url}/run/versions").status_code == 401
        given = {"Authorization": "Bearer t0ken"}
        assert httpx.get(f"{url}/run/versions", headers=given).json() == {"versions": [0]}


def test_a_cut_shard_goes_on_where_it_was(origin, weights, client_of, same):
    source = weights(1)
    origin.publish(1, source)
    faults = Faults(cut_after=5000)
    with faulty(origin.root, STREAM, faults) as url:
        assert same(client_of(url).fetch(1, 60), source)
    assert {first for _, first in faults.ranges} == {0, 5000, 10_000, 15_000}


def test_a_server_without_ranges_does(origin, weights, client_of, same):
    source = weights(1)
    origin.publish(1, source)
    with faulty(origin.root, STREAM, Faults(ignore_ranges=True, extra=b"x" * 999)) as url:
        assert same(client_of(url).fetch(1, 60), source)


@pytest.mark.parametrize("faults", [Faults(flip=True), Faults(flip=True, ignore_ranges=True)])
def test_a_corrupt_shard_is_no_version_and_is_fetched_anew(
    origin, weights, client_of, same, faults
):
    source = weights(1)
    origin.publish(1, source)
    with faulty(origin.root, STREAM, faults) as url:
        client = client_of(url)
        with pytest.raises(CorruptShard):
            client.fetch(1, 60)
        with pytest.raises(NoVersion, match="other bytes"):
            client.newest(0, 1, 0.5)
        assert client.here() == []
        faults.flip = False
        assert same(client.fetch(1, 60), source)


def test_a_broken_version_is_passed_over(origin, weights, client_of):
    for number in (1, 2):
        origin.publish(number, weights(number))
    shard = origin.root / "2" / "shard_00001.bin"
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with faulty(origin.root, STREAM, Faults()) as url:
        client = client_of(url)
        assert client.newest(0, 9, 20).number == 1
        origin.publish(3, weights(3))
        assert client.newest(0, 9, 20).number == 3


def test_an_origin_that_goes_back_takes_nobody_back(origin, weights, client_of):
    origin.publish(4, weights(4))
    origin.publish(5, weights(5))
    faults = Faults()
    with faulty(origin.root, STREAM, faults) as url:
        client = client_of(url)
        assert client.newest(0, 9, 20).number == 5
        faults.versions = b'{"versions": [3, 4]}'
        assert client.newest(0, 9, 20).number == 5
        faults.versions = b'{"versions": [4, 5, 6]}'
        faults.manifest = (origin.root / "4" / "manifest.json").read_bytes()
        (origin.root / "6").mkdir()
        (origin.root / "6" / "manifest.json").touch()
        assert client.newest(0, 9, 20).number == 5  # there is no 6, only 4 under its name
        with pytest.raises(BadManifest, match="asked for version 6"):
            client.fetch(6, 5)


def test_an_origin_that_is_gone_leaves_what_is_here(origin, weights, client_of):
    origin.publish(1, weights(1))
    with faulty(origin.root, STREAM, Faults()) as url:
        client = client_of(url)
        client.fetch(1, 20)
    assert client.newest(0, 9, 5).number == 1
    with pytest.raises(NoVersion):
        client.newest(2, 9, 0.1)
    with pytest.raises(OriginFault):
        client.fetch(2, 5)


def test_a_slow_origin_ends_at_the_deadline_and_nothing_that_came_is_lost(
    origin, weights, client_of, same
):
    source = weights(1)
    origin.publish(1, source)
    faults = Faults(bytes_per_second=5000)
    with faulty(origin.root, STREAM, faults) as url:
        client = client_of(url)
        with pytest.raises(TooSlow):
            client.fetch(1, 3)
        assert client.here() == []
        left = missing(client)
        assert 0 < left < SIZE
        faults.bytes_per_second = 0.0
        faults.ranges.clear()
        assert same(client.fetch(1, 60), source)
        assert asked(faults) == left


@pytest.mark.parametrize(
    "versions", [b"", b"[]", b'{"versions": 5}', b'{"versions": ["x", -1, null]}', b"[" * 99_999]
)
def test_a_list_of_versions_that_is_none(origin, weights, client_of, versions):
    origin.publish(1, weights(1))
    with faulty(origin.root, STREAM, Faults(versions=versions or b" ")) as url:
        with pytest.raises(NoVersion):
            client_of(url).newest(0, 9, 0.1)


def test_a_name_out_of_the_directory_writes_nothing(origin, weights, client_of, tmp_path):
    origin.publish(1, weights(1))
    evil = Manifest(STREAM, 1, (File("../../evil", 3),), (Shard(3, "0" * 64),)).signed(KEY)
    with faulty(origin.root, STREAM, Faults(manifest=evil)) as url:
        with pytest.raises(BadManifest):
            client_of(url).fetch(1, 20)
    assert not list(tmp_path.rglob("evil"))


def test_another_publisher_is_not_believed(origin, weights, client_of):
    origin.publish(1, weights(1))
    with faulty(origin.root, STREAM, Faults()) as url:
        client = client_of(url, publisher=SigningKey(b"o" * 32).node_id)
        with pytest.raises(BadManifest, match="not signed"):
            client.fetch(1, 20)


def test_a_version_that_cannot_fit_is_not_begun(origin, weights, client_of):
    origin.publish(1, weights(1))
    huge = Manifest(STREAM, 1, (File("a", 1 << 42),), (Shard(1 << 32, "0" * 64),) * 1024)
    faults = Faults(manifest=huge.signed(KEY))
    with faulty(origin.root, STREAM, faults) as url:
        with pytest.raises(DiskFull):
            client_of(url).fetch(1, 20)
    assert faults.ranges == []


FETCH = """
import resource, signal, sys
from pathlib import Path
from infra.broadcast.client import BroadcastClient
from infra.broadcast.errors import DiskFull
url, publisher, directory, limit = sys.argv[1:]
if int(limit):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
print("ready", flush=True)
try:
    BroadcastClient(url, "run", publisher, Path(directory)).fetch(1, 100)
except DiskFull:
    sys.exit(7)
"""


def child(url, client, limit=0):
    where = str(client.directory.parent.parent)
    command = [sys.executable, "-c", FETCH, url, KEY.node_id, where, str(limit)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def test_a_disk_that_fills_up_is_said_and_cleared(origin, weights, client_of, same):
    source = weights(1)
    origin.publish(1, source)
    with faulty(origin.root, STREAM, Faults()) as url:
        client = client_of(url)
        for limit in (8192, 50_000):  # shards do not fit; shards fit and the file does not
            process = child(url, client, limit)
            assert process.wait(120) == 7
            assert os.listdir(client.directory) == []
        assert same(client.fetch(1, 60), source)


def test_a_killed_client_goes_on_where_it_was(origin, weights, client_of, same):
    source = weights(1)
    origin.publish(1, source)
    faults = Faults(bytes_per_second=5000)
    with faulty(origin.root, STREAM, faults) as url:
        client = client_of(url)
        process = child(url, client)
        while missing(client) > SIZE - 30_000:
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.wait()
        assert client.here() == []
        left = missing(client)
        faults.bytes_per_second = 0.0
        faults.ranges.clear()
        assert same(client.fetch(1, 60), source)
        assert asked(faults) == left
        assert os.listdir(client.directory) == ["1"]


@pytest.mark.slow
def test_two_processes_share_a_directory(origin, weights, client_of, same):
    source = weights(1)
    origin.publish(1, source)
    faults = Faults(bytes_per_second=100_000)
    with faulty(origin.root, STREAM, faults) as url:
        client = client_of(url)
        process = child(url, client)
        assert same(client.fetch(1, 60), source)
        assert process.wait(120) == 0
    assert asked(faults) == SIZE


def origin_process(root, port):
    command = [
        sys.executable, "-m", "infra.broadcast.service", "--root", str(root), "--stream", STREAM,
        "--port", str(port),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    return process, process.stdout.readline().decode().strip()


@pytest.mark.slow
def test_a_killed_origin_that_comes_back_ends_the_fetch(origin, weights, client_of, same):
    size = 4_000_000
    source = weights(1, size=size)
    origin.publish(1, source)
    process, url = origin_process(origin.root, 0)
    client = client_of(url)
    found = []
    thread = threading.Thread(target=lambda: found.append(client.fetch(1, 280)))
    thread.start()
    while len(list(client.directory.rglob("*.bin"))) < 8:
        assert thread.is_alive()
        time.sleep(0.002)
    process.kill()
    process.wait()
    came = len(list(client.directory.rglob("*.bin")))
    assert came < size / SHARD
    assert client.here() == []
    process, _ = origin_process(origin.root, url.rpartition(":")[2])
    try:
        thread.join(280)
        assert same(found[0], source)
    finally:
        process.kill()
        process.wait()
