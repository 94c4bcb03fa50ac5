"""The pool's database: SQLite by default, PostgreSQL by URL.

Invariants: a batch of changes is there as a whole or not at all; every transaction first makes sure
that no other service has opened the database since (a fence), and raises StoreTaken otherwise; what
was committed survives kill -9 of the service and loss of power.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Float,
    Index,
    MetaData,
    Select,
    String,
    Table,
    Text,
    bindparam,
    delete,
    event,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from infra.pool.service.errors import BadSetting, StoreTaken

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
        self._engine = _engine(url)
        self._epoch = ""
        dialect: Any = postgresql if self._engine.dialect.name == "postgresql" else sqlite
        put = dialect.insert(ROWS)
        self._put_row = put.on_conflict_do_update(
            index_elements=[ROWS.c.kind, ROWS.c.key], set_={"text": put.excluded.text}
        )
        self._put_payload = dialect.insert(PAYLOADS).on_conflict_do_nothing()

    async def open(self, epoch: str) -> list[tuple[str, str, str]]:
        """Make the tables, take the database over, and return all rows."""
        self._epoch = epoch
        async with self._engine.begin() as db:
            await db.run_sync(_META.create_all)
            kind, key = _FENCE
            await db.execute(self._put_row, {"kind": kind, "key": key, "text": json.dumps(epoch)})
            found = await db.execute(select(ROWS.c.kind, ROWS.c.key, ROWS.c.text))
            return [(row.kind, row.key, row.text) for row in found if (row.kind, row.key) != _FENCE]

    async def commit(self, batch: Batch) -> None:
        """Store a batch. StoreTaken where another service has the database."""
        async with self._engine.begin() as db:
            await self._fenced(db)
            # First: a new task may use the names of the old one's shards.
            for task_id in batch.dropped_tasks:
                for table in (PAYLOADS, RESULTS, UPLOADS):
                    await db.execute(delete(table).where(table.c.task_id == task_id))
            put = [
                {"kind": kind, "key": key, "text": text}
                for (kind, key), text in batch.rows.items()
                if text is not None
            ]
            gone = [
                {"kind_": kind, "key_": key}
                for (kind, key), text in batch.rows.items()
                if text is None
            ]
            if put:
                await db.execute(self._put_row, put)
            if gone:
                where = (ROWS.c.kind == bindparam("kind_")) & (ROWS.c.key == bindparam("key_"))
                await db.execute(delete(ROWS).where(where), gone)
            if batch.payloads:
                await db.execute(self._put_payload, batch.payloads)
            if batch.results:
                await db.execute(insert(RESULTS), batch.results)
            if batch.uploads:
                await db.execute(insert(UPLOADS), batch.uploads)
            if batch.records:
                await db.execute(insert(RECORDS), batch.records)
            if batch.written_records:
                numbers = batch.written_records
                await db.execute(delete(RECORDS).where(RECORDS.c.number.in_(numbers)))

    async def _fenced(self, db: AsyncConnection) -> None:
        # An update, not a look: it holds the row until the transaction ends.
        kind, key = _FENCE
        mine = json.dumps(self._epoch)
        where = (ROWS.c.kind == kind) & (ROWS.c.key == key) & (ROWS.c.text == mine)
        found = await db.execute(update(ROWS).where(where).values(text=mine))
        if found.rowcount != 1:
            raise StoreTaken

    async def payload(self, shard_id: str) -> dict[str, Any]:
        """What a shard is about."""
        query = select(PAYLOADS.c.text).where(PAYLOADS.c.shard_id == shard_id)
        async with self._engine.connect() as db:
            text = (await db.execute(query)).scalar()
        found: dict[str, Any] = json.loads(text) if text else {}
        return found

    async def results(self, task_id: str, after: int, limit: int) -> list[str]:
        """JSON of the results of a task above a number, in order."""
        query = (
            select(RESULTS.c.text)
            .where((RESULTS.c.task_id == task_id) & (RESULTS.c.seq > after))
            .order_by(RESULTS.c.seq)
            .limit(limit)
        )
        async with self._engine.connect() as db:
            return list((await db.execute(query)).scalars())

    async def results_of_shard(self, shard_id: str) -> list[str]:
        """JSON of what became of a shard, in order."""
        query = select(RESULTS.c.text).where(RESULTS.c.shard_id == shard_id)
        async with self._engine.connect() as db:
            return list((await db.execute(query.order_by(RESULTS.c.seq))).scalars())

    async def last_result(self) -> int:
        """The highest number of a result."""
        return await self._number(select(func.max(RESULTS.c.seq)))

    async def upload(self, file_name: str) -> Upload | None:
        """What was granted under a name."""
        return await self._upload(UPLOADS.c.file_name == file_name)

    async def upload_named(self, node_id: str, group_id: str, original: str) -> Upload | None:
        """What a node was granted under its own name, in one group."""
        return await self._upload(_of(node_id, group_id) & (UPLOADS.c.original == original))

    async def _upload(self, where: ColumnElement[bool]) -> Upload | None:
        async with self._engine.connect() as db:
            row = (await db.execute(select(UPLOADS).where(where))).one_or_none()
        return None if row is None else Upload(*row)

    async def uploads_in(self, node_id: str, group_id: str, before: int | None = None) -> int:
        """How many a node was granted in a group, or in its versions before one."""
        where = _of(node_id, group_id)
        if before is not None:
            where &= UPLOADS.c.version < before
        return await self._number(select(func.count()).select_from(UPLOADS).where(where))

    async def uploads_since(self, node_id: str, at: float) -> int:
        """How many a node was granted since a time."""
        where = (UPLOADS.c.node_id == node_id) & (UPLOADS.c.at > at)
        return await self._number(select(func.count()).select_from(UPLOADS).where(where))

    async def _number(self, query: Select[Any]) -> int:
        async with self._engine.connect() as db:
            return int((await db.execute(query)).scalar() or 0)

    async def records(self) -> Sequence[tuple[int, str]]:
        """Records that wait for the ledger, in order."""
        query = select(RECORDS.c.number, RECORDS.c.text).order_by(RECORDS.c.number)
        async with self._engine.connect() as db:
            return [(int(row.number), row.text) for row in await db.execute(query)]

    async def close(self) -> None:
        """Close the connections."""
        await self._engine.dispose()


def _of(node_id: str, group_id: str) -> ColumnElement[bool]:
    return (UPLOADS.c.node_id == node_id) & (UPLOADS.c.group_id == group_id)


def _engine(url: str) -> AsyncEngine:
    protocol, bar, rest = url.partition("://")
    if not bar:
        protocol, rest = "sqlite", f"/{Path(url).expanduser().absolute()}"
    if protocol == "sqlite":
        path = Path(rest.removeprefix("/"))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}", connect_args={"timeout": 30})
        event.listen(engine.sync_engine, "connect", _durable)
        return engine
    if protocol == "postgresql":
        return create_async_engine(f"postgresql+asyncpg://{rest}", pool_pre_ping=True)
    raise BadSetting(
        f"database URL with protocol {protocol[:20]!r}: allowed are a path, sqlite:///<path> and "
        "postgresql://user@host/name"
    )


def _durable(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()
