"""A manifest that parses is safe to act on."""

import json

import pytest

from infra.broadcast.errors import BadManifest
from infra.broadcast.manifest import File, Manifest, Shard, parse
from toploc.signing import SigningKey

KEY = SigningKey(b"k" * 32)
GOOD = Manifest(
    "run", 3, (File("a.bin", 5), File("b.bin", 4)), (Shard(6, "0" * 64), Shard(3, "1" * 64))
)


def read(data: bytes, stream: str = "run", version: int = 3) -> Manifest:
    return parse(data, KEY.node_id, stream, version)


def named(*names: str) -> bytes:
    files = tuple(File(name, 3) for name in names)
    return Manifest("run", 3, files, (Shard(3 * len(names), "0" * 64),)).signed(KEY)


def test_what_was_signed_is_read_again():
    assert read(GOOD.signed(KEY)) == GOOD


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/passwd", "a/b", "..", ".", ".hidden", "", "a\\b", "a\0b", "a\nb", "x" * 201],
)
def test_a_name_that_leads_elsewhere_is_refused_even_if_it_is_signed(name):
    with pytest.raises(BadManifest):
        read(named("ok.bin", name))


def test_two_files_of_one_name_are_refused():
    with pytest.raises(BadManifest, match="one name"):
        read(named("a.bin", "a.bin"))


@pytest.mark.parametrize(("stream", "version"), [("other", 3), ("run", 2), ("run", 4)])
def test_the_manifest_of_another_version_is_refused(stream, version):
    with pytest.raises(BadManifest, match="asked for"):
        read(GOOD.signed(KEY), stream, version)


def test_the_signature_of_somebody_else_is_refused():
    with pytest.raises(BadManifest, match="not signed"):
        read(GOOD.signed(SigningKey(b"o" * 32)))


@pytest.mark.parametrize(
    "change",
    [
        {"signature": ""},
        {"signature": "zz"},
        {"signature": 5},
        {"version": True},
        {"version": 3.0},
        {"files": []},
        {"files": "a.bin"},
        {"files": [{"name": "a.bin", "size": 9, "mode": 511}]},
        {"files": [{"name": "a.bin", "size": -9}]},
        {"files": [{"name": "a.bin", "size": 10**30}]},
        {"files": [{"name": ["a"], "size": 9}]},
        {"shards": [{"size": 9, "sha256": "0" * 63}]},
        {"shards": [{"size": 9, "sha256": "G" * 64}]},
        {"shards": [{"size": 0, "sha256": "0" * 64}, {"size": 9, "sha256": "0" * 64}]},
        {"shards": [{"size": 8, "sha256": "0" * 64}]},
        {"format": "tracemill-broadcast-2"},
        {"more": 1},
    ],
    ids=str,
)
def test_a_changed_manifest_is_refused(change):
    with pytest.raises(BadManifest):
        read(json.dumps(json.loads(GOOD.signed(KEY)) | change).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"x" * (17 << 20)])
def test_what_is_no_manifest_is_refused(data):
    with pytest.raises(BadManifest):
        read(data)
