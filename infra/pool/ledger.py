"""The ledger: what nodes did, what was found about it, and who was excluded for what.

`ledger/<seq>.json` below the root, numbered from 0 without gaps; one for all runs of a root. Each
entry names the SHA-256 of the bytes of the one before, so that a change, a removal or an insertion
anywhere but at the end breaks the chain; a removal at the end shows against a head that somebody
remembered. Invariants: an entry is created once and never replaced; there is one writer at a time,
whoever creates the next entry: another one finds it there, checks it, and goes on behind it; an
entry with an origin is there once, so that a writer that died in between may append it again.
"""

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra.pool.errors import BrokenLedger, LedgerTaken
from infra.storage.errors import AlreadyExists, NotFound
from infra.storage.store import Store, json_bytes

DIRECTORY = "ledger"
START = "0" * 64
"""`previous` of the first entry."""
_TRIES = 100
_CLOCKS = 3600.0
"""Seconds by which the clocks of writers may differ."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Work(_Record):
    """A group, or one node, handed a result in; its objects were looked at."""

    kind: Literal["work"] = "work"
    task_id: str
    shard_id: str
    nodes: tuple[str, ...]
    group_id: str = ""
    files: dict[str, str] = {}
    """Path below the root -> SHA-256 of the object."""
    seconds: float = Field(default=0.0, allow_inf_nan=False)


class Verdict(_Record):
    """What the validator, or an audit, found."""

    kind: Literal["verdict"] = "verdict"
    task_id: str
    shard_id: str
    nodes: tuple[str, ...]
    group_id: str = ""
    accepted: bool
    reason: str = ""


class Invalidation(_Record):
    """Work that does not count: soft is nobody's lie, hard is."""

    kind: Literal["soft_invalidation", "hard_invalidation"]
    task_id: str
    shard_id: str
    nodes: tuple[str, ...]
    """Who answers for it."""
    reason: str
    evidence: dict[str, Any] = {}


class Slash(_Record):
    """A node is excluded for good."""

    kind: Literal["slash"] = "slash"
    node_id: str
    reason: str
    evidence: dict[str, Any] = {}
    """What shows it: file and its SHA-256, trace ids, figures, signature."""


class Ejection(_Record):
    """A node is out of its pool for a failed admission, repeated faults, or by the operator; no
    lie was shown, and another pool may take it."""

    kind: Literal["ejection"] = "ejection"
    node_id: str
    reason: str


Record = Annotated[Work | Verdict | Invalidation | Slash | Ejection, Field(discriminator="kind")]


class Entry(BaseModel):
    """One link of the chain."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int = Field(ge=0)
    previous: str
    time: float = Field(allow_inf_nan=False)
    """Seconds since 1970."""
    origin: str = ""
    """The writer's own name of what it records."""
    record: Record


@dataclass(frozen=True)
class Audit:
    """What `verify` found."""

    entries: int
    head: str
    """SHA-256 of the last entry's bytes; of nothing: 64 zeros."""
    kinds: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


class Ledger:
    """A writer's end; safe to use from several threads and processes.

    Opening reads the names of all entries and the last one; BrokenLedger where they have a gap.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        numbers = _numbers(store)
        if numbers != list(range(len(numbers))):
            missing = next(n for n in range(numbers[-1]) if n not in set(numbers))
            raise BrokenLedger(f"entry {missing} is missing", store.uri(DIRECTORY))
        self._length, self._head = len(numbers), START
        if numbers:
            data = store.read_bytes(_path(numbers[-1]))
            _parse(data, numbers[-1])
            self._head = _hash(data)

    @property
    def head(self) -> tuple[int, str]:
        """(entries, SHA-256 of the last one) that this writer knows of."""
        with self._lock:
            return self._length, self._head

    def origins(self, since: float) -> set[str]:
        """Origins of the entries that were made since a time, seconds since 1970."""
        found = set()
        for number in range(self.head[0] - 1, -1, -1):
            entry = _parse(self._store.read_bytes(_path(number)), number)
            if entry.time < since - _CLOCKS:
                break
            found.add(entry.origin)
        return found

    def append(self, record: Record, *, origin: str = "", at: float | None = None) -> None:
        """Add an entry, durable when the call returns. LedgerTaken where others never let it."""
        with self._lock:
            for _ in range(_TRIES):
                now = time.time() if at is None else at
                entry = Entry(
                    seq=self._length, previous=self._head, time=now, origin=origin, record=record
                )
                data = json_bytes(entry.model_dump(mode="json"))
                try:
                    self._store.write_bytes(_path(entry.seq), data)
                except AlreadyExists:
                    if self._catch_up(record, origin):
                        return
                else:
                    self._length, self._head = entry.seq + 1, _hash(data)
                    return
            raise LedgerTaken(self._length, self._store.uri(DIRECTORY))

    def _catch_up(self, record: Record, origin: str) -> bool:
        """Go behind what others have written; whether it is among that.

        A put that was reported as failed may have arrived.
        """
        while True:
            try:
                data = self._store.read_bytes(_path(self._length))
            except NotFound:
                return False
            entry = _parse(data, self._length)
            if entry.previous != self._head:
                raise _other_chain(entry, self._head, self._store)
            self._length, self._head = entry.seq + 1, _hash(data)
            if (entry.record, entry.origin) == (record, origin):
                return True


def entries(store: Store) -> Iterator[Entry]:
    """All entries in order; BrokenLedger at the first that is wrong."""
    previous = START
    for number in range(len(_numbers(store))):
        try:
            data = store.read_bytes(_path(number))
        except NotFound as error:
            where = store.uri(DIRECTORY)
            raise BrokenLedger(f"entry {number} is missing", where) from error
        entry = _parse(data, number)
        if entry.previous != previous:
            raise _other_chain(entry, previous, store)
        previous = _hash(data)
        yield entry


def verify(store: Store, head: str = "") -> Audit:
    """Check the chain; `head` is the hash of an entry that must be there, as remembered."""
    kinds: Counter[str] = Counter()
    previous, seen, faults = START, not head or head == START, list[str]()
    try:
        for entry in entries(store):
            seen = seen or entry.previous == head
            kinds[entry.record.kind] += 1
    except BrokenLedger as error:
        faults.append(str(error))
    count = kinds.total()
    if count:
        previous = _hash(store.read_bytes(_path(count - 1)))
    if not faults and not seen and previous != head:
        faults.append(f"no entry has the remembered hash {head[:64]}: the end was cut off")
    return Audit(count, previous, dict(sorted(kinds.items())), faults)


def _other_chain(entry: Entry, before: str, store: Store) -> BrokenLedger:
    return BrokenLedger(
        f"entry {entry.seq} follows {entry.previous[:16]}, the one before it is {before[:16]}: one "
        "of the two was changed",
        store.uri(_path(entry.seq)),
    )


def _path(number: int) -> str:
    return f"{DIRECTORY}/{number:012d}.json"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _numbers(store: Store) -> list[int]:
    numbers = []
    for path in store.list(DIRECTORY):
        name = path.removeprefix(f"{DIRECTORY}/")
        stem = name.removesuffix(".json")
        if name == stem or not (stem.isascii() and stem.isdigit() and len(stem) == 12):
            raise BrokenLedger("a file there is no entry; move it away", store.uri(path))
        numbers.append(int(stem))
    return sorted(numbers)


def _parse(data: bytes, number: int) -> Entry:
    try:
        entry = Entry.model_validate(json.loads(data))
    except (ValueError, RecursionError, ValidationError) as error:
        raise BrokenLedger(f"entry {number} is no entry: {error}"[:500], _path(number)) from error
    if entry.seq != number:
        raise BrokenLedger(f"entry {number} says that it is {entry.seq}", _path(number))
    return entry
