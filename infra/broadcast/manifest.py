"""What a version is: its files, and the shards that their bytes come in, signed by the publisher.

The bytes of all files, one after the other in the manifest's order, are cut into shards of one
size. Invariants: a manifest that parses is safe to act on (names are single path segments and
distinct, numbers are within limits, shards add up to the files) and was signed for exactly this
stream and version, so that it does not matter who handed it over. Another way to encode the bytes
(deltas between versions) is another FORMAT.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from data_contracts.ids import canonical_json
from infra.broadcast.errors import BadManifest
from infra.storage.errors import BadPath
from infra.storage.layout import segment
from toploc.signing import SigningKey, verify
from toploc.transcript import digest

FORMAT = "tracemill-broadcast-1"
MAX_MANIFEST_BYTES = 16 << 20
MAX_FILES = 1000
MAX_BYTES = 1 << 43
"""Largest version, 8 TiB."""
SHARD_BYTES = 50_000_000
"""Default size of a shard (SHARDCAST's)."""
MAX_SHARD_BYTES = 1 << 32
MANIFEST_NAME = "manifest.json"
TOKEN_VARIABLE = "TRACEMILL_BROADCAST_TOKEN"
"""Environment variable with the bearer token of an origin that others than this machine reach."""


def shard_name(index: int) -> str:
    """File name of a shard."""
    return f"shard_{index:05}.bin"


@dataclass(frozen=True)
class File:
    """One file of a version."""

    name: str
    size: int


@dataclass(frozen=True)
class Shard:
    """One piece of a version's bytes."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """One version of a stream."""

    stream: str
    version: int
    files: tuple[File, ...]
    shards: tuple[Shard, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def _digest(self) -> bytes:
        return digest("broadcast", canonical_json({"format": FORMAT} | _plain(self)))

    def signed(self, key: SigningKey) -> bytes:
        """The text that `parse` takes from this publisher."""
        signature = key.sign(self._digest()).hex()
        return canonical_json({"format": FORMAT, "signature": signature} | _plain(self)).encode()


def _plain(manifest: Manifest) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(asdict(manifest)))
    return plain


def parse(data: bytes, publisher: str, stream: str, version: int) -> Manifest:
    """The manifest of this version, signed by this publisher; BadManifest for anything else."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise BadManifest(f"a manifest of {len(data)} bytes; allowed are {MAX_MANIFEST_BYTES}")
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadManifest(f"a manifest that is not JSON: {error}") from error
    fields = _object(given, ("format", "signature", "stream", "version", "files", "shards"))
    if fields["format"] != FORMAT:
        raise BadManifest(f"a manifest of format {fields['format']!r}; this reads {FORMAT!r}")
    if fields["stream"] != stream or _number(fields["version"], 0, 1 << 53) != version:
        raise BadManifest(
            f"asked for version {version} of {stream!r}, got the manifest of version "
            f"{fields['version']!r} of {fields['stream']!r}"
        )
    manifest = Manifest(stream, version, _files(fields["files"]), _shards(fields["shards"]))
    sizes = [shard.size for shard in manifest.shards]
    if sum(sizes) != manifest.size or manifest.size > MAX_BYTES:
        raise BadManifest(f"shards of {sum(sizes)} bytes for files of {manifest.size}")
    if any(size != sizes[0] for size in sizes[:-1]):
        raise BadManifest("shards differ in size before the last one")
    signature = fields["signature"]
    try:
        signed = isinstance(signature, str) and verify(
            publisher, manifest._digest(), bytes.fromhex(signature)
        )
    except ValueError:
        signed = False
    if not signed:
        raise BadManifest(
            f"version {version} of {stream!r} is not signed by its publisher {publisher[:64]}"
        )
    return manifest


def _files(given: Any) -> tuple[File, ...]:
    files = []
    for entry in _list(given, "files", MAX_FILES):
        fields = _object(entry, ("name", "size"))
        name = fields["name"]
        try:
            name = segment(name if isinstance(name, str) else "", "file")
        except BadPath as error:
            raise BadManifest(f"file name {fields['name']!r:.100}: {error}") from error
        files.append(File(name, _number(fields["size"], 0, MAX_BYTES)))
    if len({file.name for file in files}) != len(files):
        raise BadManifest("two files of a version have one name")
    return tuple(files)


def _shards(given: Any) -> tuple[Shard, ...]:
    shards = []
    for entry in _list(given, "shards", MAX_MANIFEST_BYTES // 64):
        fields = _object(entry, ("size", "sha256"))
        sha256 = fields["sha256"]
        if not (isinstance(sha256, str) and len(sha256) == 64 and set(sha256) <= set(_HEX)):
            raise BadManifest(f"sha256 {sha256!r:.80} is not 64 lower-case hex digits")
        shards.append(Shard(_number(fields["size"], 1, MAX_SHARD_BYTES), sha256))
    return tuple(shards)


_HEX = "0123456789abcdef"


def _object(given: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(given, dict) or set(given) != set(names):
        raise BadManifest(f"{str(given)[:80]!r} is not an object with exactly {sorted(names)}")
    return given


def _list(given: Any, what: str, most: int) -> list[Any]:
    if not isinstance(given, list) or not 1 <= len(given) <= most:
        raise BadManifest(f"{what} is not a list of 1 to {most} entries")
    return given


def _number(given: Any, least: int, most: int) -> int:
    if type(given) is not int or not least <= given <= most:
        raise BadManifest(f"{given!r:.40} is not a whole number from {least} to {most}")
    return given
