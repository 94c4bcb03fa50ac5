"""The policy as a machine holds it: one engine whose weights follow the broadcast.

Invariants: the engine holds the weights of exactly one version at a time, and says its revision;
it is changed between batches only, never within one; weights are replaced in place where nothing
but the weights differs, so that a swap costs a read of the file and no second copy in memory.
"""

import filecmp
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
        self._loaded: Version | None = None

    def use_newest(self, least: int, most: int) -> tuple[int, TransformersEngine]:
        """The newest version from `least` to `most`, loaded; its number and the engine."""
        found = self._client.newest(least, most, self.broadcast.wait_seconds)
        return found.number, self.load(found)

    def use(self, version: int) -> TransformersEngine:
        """The engine with the weights of just this version."""
        return self.load(self._client.fetch(version, self.broadcast.wait_seconds))

    def load(self, version: Version) -> TransformersEngine:
        """The engine with a version's weights."""
        if self._engine is None or self._loaded is None:
            self._engine = self._made(version)
        elif self._loaded.number != version.number:
            if _only_weights_differ(self._loaded.path, version.path):
                self._engine.replace_weights(
                    version.path, directory_revision(version.path, COMPUTE_DTYPE)
                )
            else:
                self._engine.close()
                self._engine = self._made(version)
        self._loaded = version
        return self._engine

    def close(self) -> None:
        """Free the model and the connections."""
        self._client.close()
        if self._engine is not None:
            self._engine.close()

    def _made(self, version: Version) -> TransformersEngine:
        revision = directory_revision(version.path, COMPUTE_DTYPE)
        return TransformersEngine(version.path, self.model, revision, COMPUTE_DTYPE, self._threads)


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


def _only_weights_differ(old: Path, new: Path) -> bool:
    names = [[p.name for p in hashed_files(path) if not _weights(p)] for path in (old, new)]
    if names[0] != names[1] or not old.is_dir():
        return False
    return all(filecmp.cmp(old / name, new / name, shallow=False) for name in names[0])


def _weights(path: Path) -> bool:
    return path.name.endswith(".safetensors")
