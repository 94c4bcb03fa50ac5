"""What the service does by itself: ticks, storing, telling, the ledger, looks at objects.

Invariants: a record is in the ledger once, in the order in which it was decided: it leaves the
database only after it is there, and what waits at the start is looked for there first. A loop that
fails for a reason that passes goes on; one that cannot go on ends the service, whose next run
starts from what is stored.
"""

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from fastapi.concurrency import run_in_threadpool
from pydantic import TypeAdapter

from infra.pool import wire
from infra.pool.core.events import Tick
from infra.pool.core.state import ShardState
from infra.pool.errors import PoolError
from infra.pool.ledger import Ledger, Record
from infra.pool.service.admission import Admission
from infra.pool.service.errors import Conflict
from infra.pool.service.figures import Figures
from infra.pool.service.pool import Pool
from infra.pool.service.task_routes import delete_abandoned, judge
from infra.pool.service.uploads import Uploads
from infra.storage.errors import StorageError

logger = logging.getLogger(__name__)

_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
_LEDGER_SECONDS = 1.0
SILENT_SECONDS = 120.0
"""A loop that has not turned for so long makes the service unhealthy."""


class Loops:
    """The service's own work."""

    def __init__(
        self, pool: Pool, ledger: Ledger, uploads: Uploads, admission: Admission, figures: Figures
    ):
        self._pool = pool
        self._ledger = ledger
        self._uploads = uploads
        self._admission = admission
        self._figures = figures
        self._recording = asyncio.Lock()
        self._written: set[str] | None = None
        """Origins that are in the ledger and perhaps still in the database; None: not known."""
        self._recorded = 0
        """Number of the newest record that left the database; 0: it is not known what is there."""
        self.last_run: dict[str, float] = {}
        """Loop -> when it turned last, by the monotonic clock."""

    async def run(self) -> None:
        """All loops, until one fails or this is cancelled."""
        settings = self._pool.settings
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pool.journal.run())
            tasks.create_task(self._pool.listeners.run())
            tasks.create_task(self._turn("status_updater", settings.tick_seconds, self._tick))
            tasks.create_task(self._turn("ledger", _LEDGER_SECONDS, self.write_records))
            tasks.create_task(self._turn("object_audit", settings.audit_seconds, self._audit))

    async def _turn(self, name: str, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except (StorageError, PoolError) as error:
                if not error.retryable:
                    raise
                logger.error("%s: %s; tried again", name, error)
            self.last_run[name] = time.monotonic()
            await asyncio.sleep(seconds)

    async def _tick(self) -> None:
        started = time.perf_counter()
        self._pool.decide(Tick())
        self._admission.forget()
        delete_abandoned(self._pool)
        self._figures.tick_seconds.observe(time.perf_counter() - started)

    async def finish(self) -> None:
        """What nobody may have to wait for the next run for, which perhaps never comes."""
        try:
            await self.write_records()
        except (StorageError, PoolError) as error:
            logger.error("ledger: %s; what is left is written by the next run", error)

    async def write_records(self) -> None:
        """Put what waits into the ledger."""
        async with self._recording:
            newest = self._pool.last_record
            if newest == self._recorded:
                return
            await self._pool.journal.settled()
            waiting = await self._pool.store.records()
            self._written = await run_in_threadpool(self._append, waiting, self._written)
            self._pool.journal.batch.written_records += [number for number, _ in waiting]
            self._pool.journal.wake()
            await self._pool.journal.settled()
            self._written.clear()
            self._recorded = newest

    def _append(self, waiting: Sequence[tuple[int, str]], written: set[str] | None) -> set[str]:
        if written is None:
            since = waiting[0][0] / 1e9 if waiting else time.time()
            written = self._written = self._ledger.origins(since)
        for number, text in waiting:
            origin = origin_of(number, text)
            if origin not in written:
                self._ledger.append(_RECORD.validate_json(text), origin=origin)
                written.add(origin)
        return written

    async def _audit(self) -> None:
        """Look at the objects of one result that waits for its verdict: they must not change."""
        waiting = [s for s in self._pool.state.shards.values() if s.state is ShardState.SUBMITTED]
        if not waiting:
            return
        shard = random.choice(waiting)
        for text in await self._pool.store.results_of_shard(shard.shard_id):
            row = wire.ResultRow.model_validate_json(text)
            if row.state != "submitted" or row.group_id not in shard.submitted_by:
                continue
            try:
                for file in row.files:
                    await self._uploads.check(file)
            except Conflict as error:
                reason = f"object changed after it was handed in: {error}"
                verdict = wire.Verdict(
                    group_id=row.group_id,
                    accepted=False,
                    reason=reason,
                    evidence={"files": [file.model_dump() for file in row.files]},
                )
                with suppress(Conflict):
                    await judge(self._pool, shard.shard_id, verdict)


def origin_of(number: int, text: str) -> str:
    """A name of a record that the records of other services do not have."""
    return hashlib.sha256(f"{number} {text}".encode()).hexdigest()[:32]
