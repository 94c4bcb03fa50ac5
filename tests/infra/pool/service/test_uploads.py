"""Uploads where the database fails, a node is slow, or the work goes away in the meantime."""

import asyncio
import hashlib
import sqlite3

import pytest

from infra.pool import wire
from infra.pool.core.events import Beat, Beats, Proved, ShardsAdded, Submitted, TaskCreated, Tick
from infra.pool.ledger import Ledger
from infra.pool.service import journal
from infra.pool.service.admission import Admission
from infra.pool.service.errors import BadRequest, Conflict, TooMany, Unavailable
from infra.pool.service.figures import Figures
from infra.pool.service.listeners import Listeners
from infra.pool.service.loops import Loops
from infra.pool.service.pool import Pool
from infra.pool.service.settings import ServiceSettings
from infra.pool.service.storage_routes import AT_ONCE_BYTES, _Room
from infra.pool.service.store import PoolStore
from infra.pool.service.task_routes import _delete, judge
from infra.pool.service.uploads import Uploads
from infra.pool.service.view import core_task
from infra.storage import Store

NODE = "ab" * 32
DATA = b"rows" * 100
ASK = wire.UploadRequest(
    file_name="a.parquet",
    file_size=len(DATA),
    sha256=hashlib.sha256(DATA).hexdigest(),
    task_id="t",
)


class Parts:
    """A pool in this process with one node, its group, and its lease on one shard."""

    def __init__(self, directory) -> None:
        self.database = directory / "pool.sqlite"
        self.pool = Pool(PoolStore(str(self.database)), ServiceSettings(), Listeners([]))
        self.store = Store(str(directory / "root"))
        self.uploads = Uploads(self.pool, self.store, b"s" * 32)

    async def open(self) -> None:
        pool = self.pool
        await pool.open("epoch")
        task = wire.TaskView(id="t", name="t", image="i", sharded=True, created_at=0)
        pool.decide(TaskCreated(core_task(task, pool)))
        pool.tasks["t"] = task
        ask = wire.RegisterRequest(id=NODE, invite=Admission(pool).invite(INVITE).invite)
        Admission(pool).register(ask, "127.0.0.1")
        pool.decide(Proved(NODE, True))
        pool.decide(Beats([NODE]))
        pool.decide(ShardsAdded("t", ("s",)))
        pool.decide(Tick())
        pool.decide(Beat(NODE, self.group.group_id, self.group.version))
        assert self.group.shard_id == "s"
        await pool.journal.flush()

    @property
    def group(self):
        (group,) = self.pool.state.groups.values()
        return group

    @property
    def node(self):
        return self.pool.state.nodes[NODE]


INVITE = wire.InviteRequest()


def test_a_grant_that_the_database_took_late_is_one_row(tmp_path, monkeypatch):
    """The node asks again, and a second row of the same name would never be taken."""
    monkeypatch.setattr(journal, "PATIENCE", 0.2)
    parts = Parts(tmp_path)

    async def run():
        await parts.open()
        with sqlite3.connect(parts.database, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            writing = asyncio.create_task(parts.pool.journal.run())
            for _ in range(3):
                with pytest.raises(Unavailable):
                    await parts.uploads.grant(parts.node, ASK, "http://x")
            other.execute("COMMIT")
        monkeypatch.setattr(journal, "PATIENCE", 60.0)
        grant = await parts.uploads.grant(parts.node, ASK, "http://x")
        again = await parts.uploads.grant(parts.node, ASK, "http://x")
        assert grant.file_name == again.file_name and parts.pool.journal.failing == ""
        other = ASK.model_copy(update={"file_name": "b.parquet"})
        assert (await parts.uploads.grant(parts.node, other, "http://x")).file_name.endswith(
            "-1-0-b.parquet"
        )
        writing.cancel()
        await parts.pool.store.close()

    asyncio.run(run())


def test_a_slow_upload_holds_up_its_own_node_alone():
    room = _Room()
    with room.taken("slow", wire.MAX_UPLOAD_BYTES):
        with pytest.raises(TooMany, match="of this node"), room.taken("slow", 1):
            pass
        with room.taken("honest", AT_ONCE_BYTES - wire.MAX_UPLOAD_BYTES):
            with pytest.raises(TooMany, match="2 uploads"), room.taken("third", 1):
                pass
    with room.taken("slow", AT_ONCE_BYTES):
        pass


def test_files_of_a_result_are_looked_at_once_each(tmp_path):
    parts = Parts(tmp_path)

    async def run():
        await parts.open()
        writing = asyncio.create_task(parts.pool.journal.run())
        grant = await parts.uploads.grant(parts.node, ASK, "http://x")
        file = wire.StoredFile(name=grant.file_name, sha256=ASK.sha256, size=len(DATA))
        with pytest.raises(BadRequest, match="twice"):
            await parts.uploads.check_granted([file] * 64, parts.group)
        with pytest.raises(Conflict, match="not uploaded"):
            await parts.uploads.check_granted([file], parts.group)
        await parts.uploads.write(file.name, file.sha256, DATA)
        both = await asyncio.gather(
            *(parts.uploads.check_granted([file], parts.group) for _ in range(2)),
            return_exceptions=True,
        )
        assert [type(found) for found in both] == [type(None), TooMany]
        await parts.uploads.check_granted([file], parts.group)
        writing.cancel()
        await parts.pool.store.close()

    asyncio.run(run())


def test_a_task_that_is_deleted_while_its_object_is_looked_at_ends_no_service(tmp_path):
    parts = Parts(tmp_path)

    async def run():
        await parts.open()
        pool, group = parts.pool, parts.group.group_id
        file = wire.StoredFile(name="uploads/gone", sha256="0" * 64, size=1)
        pool.decide(Submitted(group, "s"))
        row = wire.ResultRow(seq=0, shard_id="s", state="submitted", group_id=group, files=[file])
        pool.add_result("t", row)
        await pool.journal.flush()
        loops = Loops(pool, Ledger(parts.store), parts.uploads, Admission(pool), Figures(pool))
        asyncio.get_running_loop().call_soon(_delete, pool, "t")
        await loops._audit()
        assert not pool.state.shards
        with pytest.raises(Conflict, match="deleted"):
            await judge(pool, "s", wire.Verdict(group_id=group, accepted=True))
        await pool.store.close()

    asyncio.run(run())
