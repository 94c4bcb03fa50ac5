"""Shards: handed out, handed in, judged."""

from typing import Any, Literal

from pydantic import Field

from infra.pool.wire.base import (
    MAX_UPLOAD_BYTES,
    Answer,
    Id,
    JsonObject,
    NodeId,
    Said,
    Sha256,
    ShortText,
    Shown,
)


class StoredFile(Said):
    """An object that a node uploaded."""

    name: str = Field(min_length=1, max_length=512)
    """`file_name` of the grant: its path below the storage root."""
    sha256: Sha256
    size: int = Field(ge=0, le=MAX_UPLOAD_BYTES)


class ShardWork(Answer):
    """A shard as a node gets it."""

    shard_id: str
    task_id: str
    payload: dict[str, Any]


class CanaryWork(ShardWork):
    """A shard whose result is known, and the image that it is for."""

    image: str


class ShardResult(Said):
    """Body of POST /shards/{shard_id}/result; the service looks at the objects themselves."""

    group_id: Id
    output: JsonObject = Field(default_factory=dict)
    files: list[StoredFile] = Field(default_factory=list, max_length=64)
    seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class ShardFailure(Said):
    """Body of POST /shards/{shard_id}/failure. cause: whose fault it is."""

    group_id: Id
    cause: Literal["user", "infra", "config"]
    kind: ShortText = ""
    reason: str = Field(default="", max_length=2000)


class NewShard(Said):
    """One piece of work of a task."""

    shard_id: Id
    payload: JsonObject = Field(default_factory=dict)
    kind: ShortText = ""
    """Shards of one kind take about the same time."""
    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    """Lower goes first within the task."""


class ShardsRequest(Said):
    """Body of POST /tasks/{id}/shards; shards that are known are skipped."""

    shards: list[NewShard] = Field(min_length=1, max_length=1000)


class ResultRow(Shown):
    """How a shard came out of one group's hands, or ended."""

    seq: int
    shard_id: str
    state: Literal["submitted", "done", "failed", "stopped"]
    """submitted: a verdict is wanted; done: accepted; failed: given up; stopped: the task is not
    scheduled any more (its `shard_id` is empty)."""
    group_id: str = ""
    node_ids: list[str] = Field(default_factory=list)
    """The group's members by rank, when it submitted."""
    node_id: str = ""
    """Who reported."""
    output: dict[str, Any] = Field(default_factory=dict)
    files: list[StoredFile] = Field(default_factory=list)
    seconds: float = 0.0
    reason: str = ""


class Results(Answer):
    """Answer to GET /tasks/{id}/results: rows with a `seq` above `after`, in order."""

    results: list[ResultRow]


class Verdict(Said):
    """Body of POST /shards/{shard_id}/verdict."""

    group_id: Id
    accepted: bool
    final: bool = False
    """A refused shard is given up, not given out again."""
    hard: bool = False
    """Guilty nodes are banned; else it is counted."""
    guilty: list[NodeId] = Field(default_factory=list, max_length=64)
    reason: str = Field(default="", max_length=2000)
    evidence: JsonObject = Field(default_factory=dict)
    """What a slash in the ledger stands on."""
