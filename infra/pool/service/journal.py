"""What has to be stored, and when it is.

Changes are collected while the ones before them are being written, and go together in one
transaction, so that thousands of requests a second need a few commits. Invariant: after `settled`
everything that was noted before it is in the database; an answer that waits for it says nothing
that a kill -9 could undo. While the database fails, nothing is lost: it is tried until it works,
and `settled` gives up after `PATIENCE` seconds.
"""

import asyncio
import logging
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from infra.pool.service.errors import StoreTaken, Unavailable
from infra.pool.service.store import Batch, PoolStore

logger = logging.getLogger(__name__)

PATIENCE = 10.0
_PAUSE = 0.5


class Journal:
    """Belongs to one event loop."""

    def __init__(self, store: PoolStore, dump: Callable[[str, str], str | None]):
        self._store = store
        self._dump = dump
        self.batch = Batch()
        """Whoever changes something adds to it, without awaiting in between."""
        self._dirty: set[tuple[str, str]] = set()
        self._wake = asyncio.Event()
        self._next: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self.failing = ""
        """Why the last try to store something failed; empty: it did not."""

    def touch(self, kind: str, key: str) -> None:
        """A row changed; its text is taken when it is written."""
        self._dirty.add((kind, key))
        self.wake()

    def wake(self) -> None:
        """Something was added."""
        self._wake.set()

    async def settled(self) -> None:
        """Return when everything noted so far is stored; Unavailable if that takes too long."""
        if self._dirty or self.batch:
            if self._next is None:
                self._next = asyncio.get_running_loop().create_future()
            waiting = self._next
        elif self._writing is not None:
            waiting = self._writing
        else:
            return
        try:
            await asyncio.wait_for(asyncio.shield(waiting), PATIENCE)
        except TimeoutError:
            why = self.failing or "it is slow"
            raise Unavailable(f"the database does not take changes now: {why}") from None

    async def run(self) -> None:
        """Write until cancelled; StoreTaken ends it."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.flush()

    async def flush(self) -> None:
        """Write what was noted."""
        if not self._dirty and not self.batch:
            return
        batch, self.batch = self.batch, Batch()
        batch.rows = {row: self._dump(*row) for row in self._dirty}
        self._dirty = set()
        done = self._next or asyncio.get_running_loop().create_future()
        self._next, self._writing = None, done
        try:
            await self._insist(batch)
            done.set_result(None)
        except StoreTaken as error:
            done.set_exception(error)
            done.exception()  # perhaps nobody waits for it
            raise
        finally:
            self._writing = None

    async def _insist(self, batch: Batch) -> None:
        while True:
            try:
                await self._store.commit(batch)
                self.failing = ""
                return
            except (SQLAlchemyError, OSError) as error:
                self.failing = f"{type(error).__name__}: {error}"[:300]
                logger.error("the pool's database: %s; tried again", self.failing)
                await asyncio.sleep(_PAUSE)
