"""The database: whole batches, one service at a time, on SQLite and on a real PostgreSQL."""

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
import time

import pytest
from sqlalchemy.exc import IntegrityError

from infra.pool.service.errors import StoreTaken
from infra.pool.service.journal import Journal
from infra.pool.service.store import Batch, PoolStore


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request, tmp_path):
    """URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/pool.sqlite"
        return
    if shutil.which("initdb") is None or os.getuid() != 0:
        pytest.skip("no PostgreSQL here, or this is not root, who may start it as its own user")
    user = pwd.getpwnam("postgres")
    data = tmp_path / "pg"
    data.mkdir()
    for parent in (data, *data.parents[:3]):
        parent.chmod(0o755)
    os.chown(data, user.pw_uid, user.pw_gid)
    run_as = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    subprocess.run([*run_as, "initdb", "-A", "trust", "-D", data], check=True, capture_output=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["-D", data, "-p", str(port), "-k", data, "-c", "listen_addresses=127.0.0.1"]
    server = subprocess.Popen([*run_as, "postgres", *options], stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        time.sleep(1)
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        server.terminate()
        server.wait()


def result(seq, text="{}"):
    return {"seq": seq, "task_id": "t", "shard_id": "s", "text": text}


def test_what_was_committed_comes_back(database):
    async def run():
        store = PoolStore(database)
        assert await store.open("one") == []
        grant = {
            "file_name": "uploads/x", "node_id": "n", "group_id": "g", "task_id": "t",
            "original": "x", "version": 0, "at": 5.0, "sha256": "0" * 64, "size": 7,
        }  # fmt: skip
        batch = Batch(
            rows={("node", "a"): "1", ("node", "b"): "2"},
            payloads=[{"shard_id": "s", "task_id": "t", "text": '{"n": 1}'}],
            results=[result(1), result(2)],
            uploads=[grant],
            records=[{"number": 4, "text": "x"}, {"number": 5, "text": "y"}],
        )
        await store.commit(batch)
        await store.commit(
            Batch(rows={("node", "a"): None, ("node", "b"): "3"}, written_records=[4])
        )
        await store.close()
        again = PoolStore(database)
        assert await again.open("two") == [("node", "b", "3")]
        assert await again.payload("s") == {"n": 1}
        assert await again.results("t", 1, 10) == ["{}"] and await again.last_result() == 2
        assert (await again.upload("uploads/x")).size == 7
        known, since, count = await again.uploads("n", "g", "x", 4.0)
        assert (known.file_name, since, count) == ("uploads/x", 1, 1)
        assert await again.uploads("n", "h", "x", 6.0) == (None, 0, 0)
        assert [await again.uploads_before("n", "g", version) for version in (0, 1)] == [0, 1]
        assert list(await again.records()) == [(5, "y")]
        last = Batch(results=[result(3)])
        last.drop_task("t")
        last.payloads.append({"shard_id": "s", "task_id": "u", "text": '{"n": 2}'})
        await again.commit(last)
        assert await again.payload("s") == {"n": 2}
        assert await again.results("t", 0, 10) == [] and await again.upload("uploads/x") is None
        await again.close()

    asyncio.run(run())


def test_a_batch_is_there_as_a_whole_or_not(database):
    async def run():
        store = PoolStore(database)
        await store.open("one")
        await store.commit(Batch(results=[result(1)]))
        with pytest.raises(IntegrityError):
            await store.commit(Batch(rows={("node", "a"): "1"}, results=[result(1)]))
        assert await store.open("one") == []
        await store.close()

    asyncio.run(run())


def test_who_was_replaced_changes_nothing_more(database):
    async def run():
        first, second = PoolStore(database), PoolStore(database)
        await first.open("one")
        await first.commit(Batch(rows={("node", "a"): "1"}))
        await second.open("two")
        journal = Journal(first, lambda kind, key: "2")
        running = asyncio.create_task(journal.run())
        journal.touch("node", "a")
        with pytest.raises(StoreTaken):
            await journal.settled()
        with pytest.raises(StoreTaken):
            await running
        assert await second.open("two") == [("node", "a", "1")]
        await first.close()
        await second.close()

    asyncio.run(run())


def test_an_answer_waits_for_what_it_speaks_of(tmp_path):
    async def run():
        store = PoolStore(str(tmp_path / "pool.sqlite"))
        await store.open("one")
        value = "1"
        journal = Journal(store, lambda kind, key: value)
        running = asyncio.create_task(journal.run())
        await journal.settled()
        for value in ("1", "2", "3"):
            journal.touch("node", "a")
            await journal.settled()
            assert await store.open("one") == [("node", "a", value)]
        running.cancel()
        await store.close()

    asyncio.run(run())
