"""The pool's shell around the core."""

import asyncio
import time

from infra.pool.core.events import Tick
from infra.pool.service.listeners import Listeners
from infra.pool.service.pool import Pool
from infra.pool.service.settings import ServiceSettings
from infra.pool.service.store import PoolStore


def test_a_step_of_the_wall_clock_holds_nothing_up(tmp_path, monkeypatch):
    async def run():
        pool = Pool(PoolStore(str(tmp_path / "db")), ServiceSettings(), Listeners([]))
        await pool.open("epoch")
        pool.decide(Tick())
        began, real = pool.state.now, time.time
        for ahead in (3600.0, -3600.0):
            monkeypatch.setattr(time, "time", lambda ahead=ahead: real() + ahead)
            await asyncio.sleep(0.02)
            pool.decide(Tick())
        assert 0.04 <= pool.state.now - began < 60.0
        await pool.journal.flush()
        await pool.store.close()

    asyncio.run(run())
