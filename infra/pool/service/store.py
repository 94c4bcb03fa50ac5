"""The pool's database: SQLite by default, PostgreSQL by URL.

Invariants: a batch of changes is there as a whole or not at all; every transaction first makes sure
that no other service has opened the database since (a fence), and raises StoreTaken otherwise; what
was committed survives kill -9 of the service and loss of power; a transaction goes on to its end
also where nobody waits for it any more.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    MetaData,
    Select,
    String,
    Table,
    Text,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from infra.pool.service.database import database
from infra.pool.service.errors import StoreTaken

_META = MetaData()
ROWS = Table(
    "pool_rows",
    _META,
    Column("kind", String(40), primary_key=True),
    Column("key", String(600), primary_key=True),
    Column("text", Text, nullable=False),
)
"""What the service keeps in memory: the core's entities and its own."""
PAYLOADS = Table(
    "pool_payloads",
    _META,
    Column("shard_id", String(200), primary_key=True),
    Column("task_id", String(200), nullable=False, index=True),
    Column("text", Text, nullable=False),
)
RESULTS = Table(
    "pool_results",
    _META,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("task_id", String(200), nullable=False),
    Column("shard_id", String(200), nullable=False, index=True),
    Column("text", Text, nullable=False),
    Index("pool_results_of_task", "task_id", "seq"),
)
UPLOADS = Table(
    "pool_uploads",
    _META,
    Column("file_name", String(600), primary_key=True),
    Column("node_id", String(64), nullable=False),
    Column("group_id", String(200), nullable=False),
    Column("task_id", String(200), nullable=False, index=True),
    Column("original", String(200), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("at", Float, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Index("pool_uploads_of_group", "node_id", "group_id", "original"),
    Index("pool_uploads_by_time", "node_id", "at"),
)
RECORDS = Table(
    "pool_records",
    _META,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("text", Text, nullable=False),
)
"""Records that wait for their place in the ledger; numbers are nanoseconds since 1970."""

_FENCE = ("service", "epoch")

# Built once: building a statement takes longer than SQLite takes for it.
_ROW = (ROWS.c.kind == bindparam("of_kind")) & (ROWS.c.key == bindparam("of_key"))
_HOLD = update(ROWS).where(_ROW & (ROWS.c.text == bindparam("mine"))).values(text=bindparam("mine"))
_REMOVE_ROW = delete(ROWS).where(_ROW)
_ALL_ROWS = select(ROWS.c.kind, ROWS.c.key, ROWS.c.text)
_PAYLOAD = select(PAYLOADS.c.text).where(PAYLOADS.c.shard_id == bindparam("shard_id"))
_RESULTS = (
    select(RESULTS.c.text)
    .where((RESULTS.c.task_id == bindparam("task_id")) & (RESULTS.c.seq > bindparam("after")))
    .order_by(RESULTS.c.seq)
    .limit(bindparam("most"))
)
_OF_SHARD = (
    select(RESULTS.c.text)
    .where(RESULTS.c.shard_id == bindparam("shard_id"))
    .order_by(RESULTS.c.seq)
)
_LAST_RESULT = select(func.max(RESULTS.c.seq))
_UPLOAD = select(UPLOADS).where(UPLOADS.c.file_name == bindparam("file_name"))
_OF_GROUP = (UPLOADS.c.node_id == bindparam("node_id")) & (
    UPLOADS.c.group_id == bindparam("group_id")
)
_NAMED = select(UPLOADS).where(_OF_GROUP & (UPLOADS.c.original == bindparam("original")))
_COUNT = select(func.count()).select_from(UPLOADS)
_IN_GROUP = _COUNT.where(_OF_GROUP)
_BEFORE = _IN_GROUP.where(UPLOADS.c.version < bindparam("version"))
_SINCE = _COUNT.where(
    (UPLOADS.c.node_id == bindparam("node_id")) & (UPLOADS.c.at > bindparam("at"))
)
_RECORDS = select(RECORDS.c.number, RECORDS.c.text).order_by(RECORDS.c.number)
_REMOVE_RECORD = delete(RECORDS).where(RECORDS.c.number == bindparam("written"))
_REMOVE_TASK = [
    delete(table).where(table.c.task_id == bindparam("task"))
    for table in (PAYLOADS, RESULTS, UPLOADS)
]
_NEW_RESULTS, _NEW_UPLOADS, _NEW_RECORDS = insert(RESULTS), insert(UPLOADS), insert(RECORDS)


@dataclass(frozen=True, slots=True)
class Upload:
    """What a node was granted: a row of the table."""

    file_name: str
    node_id: str
    group_id: str
    task_id: str
    original: str
    version: int
    """Of the group."""
    at: float
    sha256: str
    size: int


@dataclass
class Batch:
    """Changes that are committed together."""

    rows: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """(kind, key) -> JSON; None removes the row."""
    payloads: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    uploads: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    dropped_tasks: list[str] = field(default_factory=list)
    """Tasks whose payloads and results go away."""
    written_records: list[int] = field(default_factory=list)
    """Records that are in the ledger."""

    def drop_task(self, task_id: str) -> None:
        """What a task has stored goes away, and what is still to be stored of it."""
        for rows in (self.payloads, self.results, self.uploads):
            rows[:] = [row for row in rows if row["task_id"] != task_id]
        self.dropped_tasks.append(task_id)

    def __bool__(self) -> bool:
        return any(vars(self).values())


class PoolStore:
    """The database of one pool."""

    def __init__(self, url: str) -> None:
        self._database = database(url)
        self._epoch = ""
        dialect: Any = postgresql if self._database.dialect == "postgresql" else sqlite
        put = dialect.insert(ROWS)
        self._put_row = put.on_conflict_do_update(
            index_elements=[ROWS.c.kind, ROWS.c.key], set_={"text": put.excluded.text}
        )
        self._put_payload = dialect.insert(PAYLOADS).on_conflict_do_nothing()

    async def open(self, epoch: str) -> list[tuple[str, str, str]]:
        """Make the tables, take the database over, and return all rows."""
        self._epoch = epoch
        kind, key = _FENCE

        def work(db: Connection) -> list[tuple[str, str, str]]:
            _META.create_all(db)
            db.execute(self._put_row, {"kind": kind, "key": key, "text": json.dumps(epoch)})
            found = db.execute(_ALL_ROWS)
            return [(row.kind, row.key, row.text) for row in found if (row.kind, row.key) != _FENCE]

        return await self._database.run(work)

    async def commit(self, batch: Batch) -> None:
        """Store a batch. StoreTaken where another service has the database."""
        await self._database.run(lambda db: self._commit(db, batch))

    def _commit(self, db: Connection, batch: Batch) -> None:
        # An update, not a look: it holds the row until the transaction ends.
        kind, key = _FENCE
        mine = {"of_kind": kind, "of_key": key, "mine": json.dumps(self._epoch)}
        if db.execute(_HOLD, mine).rowcount != 1:
            raise StoreTaken
        # First: a new task may use the names of the old one's shards.
        for task_id in batch.dropped_tasks:
            for remove in _REMOVE_TASK:
                db.execute(remove, {"task": task_id})
        put = [
            {"kind": kind, "key": key, "text": text}
            for (kind, key), text in batch.rows.items()
            if text is not None
        ]
        gone = [
            {"of_kind": kind, "of_key": key}
            for (kind, key), text in batch.rows.items()
            if text is None
        ]
        for statement, rows in (
            (self._put_row, put),
            (_REMOVE_ROW, gone),
            (self._put_payload, batch.payloads),
            (_NEW_RESULTS, batch.results),
            (_NEW_UPLOADS, batch.uploads),
            (_NEW_RECORDS, batch.records),
            (_REMOVE_RECORD, [{"written": number} for number in batch.written_records]),
        ):
            if rows:
                db.execute(statement, rows)

    async def payload(self, shard_id: str) -> dict[str, Any]:
        """What a shard is about."""
        texts = await self._texts(_PAYLOAD, shard_id=shard_id)
        found: dict[str, Any] = json.loads(texts[0]) if texts else {}
        return found

    async def results(self, task_id: str, after: int, limit: int) -> list[str]:
        """JSON of the results of a task above a number, in order."""
        return await self._texts(_RESULTS, task_id=task_id, after=after, most=limit)

    async def results_of_shard(self, shard_id: str) -> list[str]:
        """JSON of what became of a shard, in order."""
        return await self._texts(_OF_SHARD, shard_id=shard_id)

    async def _texts(self, query: Select[Any], **values: Any) -> list[str]:
        return await self._database.run(lambda db: list(db.execute(query, values).scalars()))

    async def last_result(self) -> int:
        """The highest number of a result."""
        return await self._number(_LAST_RESULT)

    async def upload(self, file_name: str) -> Upload | None:
        """What was granted under a name."""
        return await self._database.run(lambda db: _one(db, _UPLOAD, file_name=file_name))

    async def uploads(
        self, node_id: str, group_id: str, original: str, at: float
    ) -> tuple[Upload | None, int, int]:
        """What a node was granted under its own name in one group, how many since a time, and how
        many in the group.
        """

        def work(db: Connection) -> tuple[Upload | None, int, int]:
            of = {"node_id": node_id, "group_id": group_id}
            known = _one(db, _NAMED, **of, original=original)
            since = db.execute(_SINCE, {"node_id": node_id, "at": at}).scalar_one()
            return known, since, db.execute(_IN_GROUP, of).scalar_one()

        return await self._database.run(work)

    async def uploads_before(self, node_id: str, group_id: str, version: int) -> int:
        """How many a node was granted in a group before one of its versions."""
        return await self._number(_BEFORE, node_id=node_id, group_id=group_id, version=version)

    async def _number(self, query: Select[Any], **values: Any) -> int:
        return await self._database.run(lambda db: int(db.execute(query, values).scalar() or 0))

    async def records(self) -> Sequence[tuple[int, str]]:
        """Records that wait for the ledger, in order."""
        return await self._database.run(
            lambda db: [(int(row.number), row.text) for row in db.execute(_RECORDS)]
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._database.close()


def _one(db: Connection, query: Select[Any], **values: Any) -> Upload | None:
    row = db.execute(query, values).one_or_none()
    return None if row is None else Upload(*row)
