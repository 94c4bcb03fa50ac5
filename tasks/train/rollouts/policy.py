"""The policy as a machine holds it: one engine whose weights follow the broadcast.

Invariants: the engine holds the weights of exactly one version at a time, and says its revision;
it is changed between batches only, never within one; weights are replaced in place where nothing
but the weights differs, so that a swap costs a read of the file and no second copy in memory; what
is loaded does not need its directory any more, which another process may tidy away.
"""

import hashlib
from pathlib import Path

from infra.broadcast import BroadcastClient, Version
from infra.inference.transformers_engine import TransformersEngine
from infra.models.cache import cache_root
from infra.models.registry import COMPUTE_DTYPE
from infra.models.revision import directory_revision, hashed_files
from tasks.train.rollouts.job import Broadcast


def version_cache() -> Path:
    """Where versions lie on this machine; its processes share them."""
    return cache_root().parent / "versions"


class Policy:
    """The versions of one stream, one of them loaded."""

    def __init__(self, model: str, broadcast: Broadcast, directory: Path, threads: int = 1):
        self.model = model
        self.broadcast = broadcast
        self._threads = threads
        self._client = BroadcastClient(
            broadcast.url, broadcast.stream, broadcast.publisher, directory, broadcast.keep
        )
        self._engine: TransformersEngine | None = None
        self._loaded = -1
        """Number of the version that the engine holds."""
        self._beside: dict[str, str] = {}
        """What `_beside` gave for it."""

    def use_newest(self, least: int, most: int) -> tuple[int, TransformersEngine]:
        """The newest version from `least` to `most`, loaded; its number and the engine."""
        found = self._client.newest(least, most, self.broadcast.wait_seconds)
        return found.number, self.load(found)

    def use(self, version: int) -> TransformersEngine:
        """The engine with the weights of just this version."""
        return self.load(self._client.fetch(version, self.broadcast.wait_seconds))

    def load(self, version: Version) -> TransformersEngine:
        """The engine with a version's weights."""
        engine = self._engine
        if engine is not None and self._loaded == version.number:
            return engine
        beside = _beside(version.path)
        revision = directory_revision(version.path, COMPUTE_DTYPE)
        if engine is not None and self._beside == beside:
            engine.replace_weights(version.path, revision)
        else:
            self._close_engine()
            engine = TransformersEngine(
                version.path, self.model, revision, COMPUTE_DTYPE, self._threads
            )
        self._engine, self._loaded, self._beside = engine, version.number, beside
        return engine

    def close(self) -> None:
        """Free the model and the connections."""
        self._client.close()
        self._close_engine()

    def _close_engine(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None


class Policies:
    """The policy of the stream that was asked for last; one at a time is in memory."""

    def __init__(self) -> None:
        self._held: Policy | None = None

    def of(self, model: str, broadcast: Broadcast) -> Policy:
        """The policy of a stream."""
        held = self._held
        if held is None or (held.model, held.broadcast) != (model, broadcast):
            if held is not None:
                held.close()
            self._held = held = Policy(model, broadcast, version_cache())
        return held


def _beside(directory: Path) -> dict[str, str]:
    """SHA-256 by name of the files that an engine is made of, without the weights."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in hashed_files(directory)
        if not path.name.endswith(".safetensors")
    }
