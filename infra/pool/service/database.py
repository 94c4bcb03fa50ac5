"""Transactions of plain functions beside an event loop: SQLite in threads, PostgreSQL by asyncpg.

SQLite answers within a fraction of a millisecond. A thread does a transaction as a whole, because
a way to a thread and back for each statement costs many times what the statement does.
Invariant: a function that returned is committed, and of one that raised nothing is there.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import create_engine, event
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from infra.pool.service.errors import BadSetting

T = TypeVar("T")

THREADS = 4
"""One writes; the others read while it waits for the disk."""


class Database(Protocol):
    """Where transactions are done."""

    dialect: str

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Do a transaction and commit it."""

    async def close(self) -> None:
        """Close the connections, when what is being done is done."""


def database(url: str) -> Database:
    """Of a URL, or of the path of an SQLite file."""
    protocol, bar, rest = url.partition("://")
    if not bar:
        protocol, rest = "sqlite", f"/{Path(url).expanduser().absolute()}"
    if protocol == "sqlite":
        return _Sqlite(Path(rest.removeprefix("/")))
    if protocol == "postgresql":
        return _Postgresql(rest)
    raise BadSetting(
        f"database URL with protocol {protocol[:20]!r}: allowed are a path, sqlite:///<path> and "
        "postgresql://user@host/name"
    )


class _Sqlite:
    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 30})
        event.listen(self._engine, "connect", _durable)
        self._threads = ThreadPoolExecutor(THREADS, "database")

    async def run(self, work: Callable[[Connection], T]) -> T:
        def transaction() -> T:
            with self._engine.begin() as db:
                return work(db)

        return await asyncio.get_running_loop().run_in_executor(self._threads, transaction)

    async def close(self) -> None:
        self._threads.shutdown()
        self._engine.dispose()


class _Postgresql:
    dialect = "postgresql"

    def __init__(self, rest: str) -> None:
        self._engine = create_async_engine(f"postgresql+asyncpg://{rest}", pool_pre_ping=True)

    async def run(self, work: Callable[[Connection], T]) -> T:
        async with self._engine.begin() as db:
            return await db.run_sync(work)

    async def close(self) -> None:
        await self._engine.dispose()


def _durable(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()
