"""A pool on this machine: the real service, real agents, and a worker that does what it is told."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from infra.pool import Job, JobFailed, JobResult, PoolClosed
from infra.pool.ledger import entries
from infra.pool.remote import CHECKERS
from infra.storage import Store
from tasks.provision.config import ProvisionConfig
from tasks.provision.local import local_pool

WORKER = (sys.executable, "-S", str(Path(__file__).with_name("node.py")))
WAIT = 120


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    return Store(str(tmp_path_factory.mktemp("root")))


@pytest.fixture(scope="module")
def pool(store):
    with local_pool(ProvisionConfig(nodes=2), store, "runs/x", WORKER) as started:
        yield started


def job(job_id: str, priority: int = 0, **payload) -> Job:
    return Job(job_id, "any", payload, priority)


def children(name: str) -> list[psutil.Process]:
    """Processes below this one that were started as a module, or with a file."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if any(name in part for part in child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found


def test_results_come_back_to_their_jobs_from_both_nodes(pool):
    futures = [pool.submit(job(f"j{n}", echo={"n": n}, sleep=0.05)) for n in range(12)]
    results = [future.result(WAIT) for future in futures]
    assert [result.output["n"] for result in results] == list(range(12))
    assert [result.job_id for result in results] == [f"j{n}" for n in range(12)]
    assert {result.node_id for result in results} <= {node.node_id for node in pool.nodes()}
    assert len(pool.nodes()) == 2


def test_a_file_arrives_below_the_uploads_of_the_run(pool, store):
    (file,) = pool.submit(job("file", write="made here")).result(WAIT).files
    assert file.path.startswith("runs/x/uploads/")
    assert store.read_bytes(file.path) == b"made here" and file.size == 9


def test_lower_priority_numbers_go_first(pool, tmp_path):
    log = tmp_path / "log"
    holds = [pool.submit(job("hold", sleep=8)), pool.submit(job("short", sleep=2))]
    time.sleep(0.5)
    late = [
        pool.submit(job(name, priority, log=str(log), name=name))
        for name, priority in [("a", 0), ("b", 0), ("urgent", -1)]
    ]
    for future in [*holds, *late]:
        future.result(WAIT)
    assert log.read_text().split()[0] == "urgent"


def test_a_job_that_raises_is_given_up_and_the_others_go_on(pool):
    bad, good = pool.submit(job("bad", **{"raise": "no such model"})), pool.submit(job("good"))
    with pytest.raises(JobFailed, match=r"job bad failed: user: ValueError: no such model"):
        bad.result(WAIT)
    assert good.result(WAIT).job_id == "good"


def test_a_job_survives_the_death_of_its_worker(pool, tmp_path):
    mark = tmp_path / "tries"
    result = pool.submit(job("hard", die_until=str(mark), times=2, echo={"ok": 1})).result(WAIT)
    assert result.output["ok"] == 1
    assert mark.read_text() == "xxx"


def test_a_refused_result_is_made_again_and_a_fault_of_ours_ends_the_job(pool):
    class Refused(Exception):
        retryable = True

    seen: list[JobResult] = []

    def once(result: JobResult) -> None:
        seen.append(result)
        if len(seen) == 1:
            raise Refused("not this one")

    def broken(result: JobResult) -> None:
        raise KeyError("ours")

    assert pool.submit(job("twice", echo={"n": 2}), once).result(WAIT).output["n"] == 2
    assert len(seen) == 2
    with pytest.raises(KeyError, match="ours"):
        pool.submit(job("ours"), broken).result(WAIT)


def test_a_refusal_is_booked_once_as_what_it_is(pool, store):
    class Lie(Exception):
        lie = True
        evidence: ClassVar = {"sha256": "0" * 64}

    def catch(result: JobResult) -> None:
        raise Lie("forged")

    with pytest.raises(Lie):
        pool.submit(job("lie", write="forged"), catch).result(WAIT)
    deadline, found = time.monotonic() + WAIT, []
    while not found and time.monotonic() < deadline:
        # The service books in its own time.
        time.sleep(0.1)
        records = [entry.record for entry in entries(store)]
        found = [r.shard_id for r in records if r.kind == "hard_invalidation"]
    work, verdict, invalidation = [r for r in records if getattr(r, "shard_id", "") == found[0]]
    assert work.kind == "work" and work.nodes == verdict.nodes == invalidation.nodes
    assert (verdict.kind, verdict.accepted) == ("verdict", False)
    assert (invalidation.kind, invalidation.evidence) == ("hard_invalidation", Lie.evidence)


def test_checks_may_wait_for_other_jobs_of_the_pool(pool):
    def ask(result: JobResult) -> None:
        assert pool.submit(job(f"about {result.job_id}", -1)).result(WAIT)

    count = CHECKERS + 4
    futures = [pool.submit(job(f"ask{n}"), ask) for n in range(count)]
    assert len([future.result(WAIT) for future in futures]) == count


def test_what_is_made_of_a_cancelled_job_goes_to_its_check(pool):
    seen: list[str] = []
    future = pool.submit(job("begun", sleep=2), lambda result: seen.append(result.job_id))
    time.sleep(1)
    assert future.cancel()
    deadline = time.monotonic() + WAIT
    while pool.waiting() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert seen == ["begun"] and pool.waiting() == 0


def test_a_cancelled_job_that_nobody_has_is_not_done(pool, tmp_path):
    log = tmp_path / "log"
    holds = [pool.submit(job(f"hold{n}", sleep=2)) for n in range(2)]
    time.sleep(0.5)
    late = pool.submit(job("late", log=str(log), name="ran"))
    assert late.cancel()
    for future in [*holds, pool.submit(job("after"))]:
        future.result(WAIT)
    assert not log.exists()
    assert pool.waiting() == 0


def test_kill_9_of_an_agent_and_of_the_service_loses_nothing_and_does_nothing_twice(pool):
    done: dict[str, int] = {}
    lock = threading.Lock()

    def count(result: JobResult) -> None:
        with lock:
            done[result.job_id] = done.get(result.job_id, 0) + 1

    deadline = time.monotonic() + WAIT
    while len(before := {node.node_id for node in pool.nodes()}) < 2:
        assert time.monotonic() < deadline, "the nodes did not join"
        time.sleep(0.1)
    futures = [pool.submit(job(f"k{n}", sleep=0.5, echo={"n": n}), count) for n in range(10)]
    time.sleep(0.3)
    children("infra.pool.agent")[0].kill()
    futures[2].result(WAIT)
    children("infra.pool.service")[0].kill()
    results = [future.result(WAIT) for future in futures]
    assert [result.output["n"] for result in results] == list(range(10))
    assert done == {f"k{n}": 1 for n in range(10)}
    assert {node.node_id for node in pool.nodes()} == before, "a node came back as another one"


def test_a_node_that_is_caught_is_replaced_by_another(pool):
    caught = pool.submit(job("lie")).result(WAIT).node_id
    pool.distrust(caught, "it lied", {"file": "x"})
    pool.distrust("00" * 32, "nobody", {})
    makers = {pool.submit(job(f"n{n}")).result(WAIT).node_id for n in range(4)}
    assert caught not in makers
    deadline = time.monotonic() + WAIT
    while len([n for n in pool.nodes() if n.state == "Healthy"]) < 2:
        assert time.monotonic() < deadline, pool.nodes()
        time.sleep(0.2)


def test_close_ends_all_processes_and_what_waits():
    others = children(WORKER[-1])
    with local_pool(ProvisionConfig(nodes=1), command=WORKER) as pool:
        running = pool.submit(job("a", sleep=600))
        deadline = time.monotonic() + WAIT
        while len(workers := children(WORKER[-1])) <= len(others) and time.monotonic() < deadline:
            time.sleep(0.1)
        mine = [process for process in workers if process not in others]
    with pytest.raises(PoolClosed):
        running.result(5)
    assert mine
    with pytest.raises(PoolClosed, match="start it"):
        pool.submit(job("late"))
    _, alive = psutil.wait_procs(mine, timeout=30)
    assert not alive


def test_nothing_outlives_a_killed_flow():
    code = (
        "import time\n"
        "from infra.pool import Job\n"
        "from tasks.provision.config import ProvisionConfig\n"
        "from tasks.provision.local import local_pool\n"
        f"with local_pool(ProvisionConfig(nodes=1), command={WORKER!r}) as pool:\n"
        "    job = pool.submit(Job('a', 'any', {'sleep': 600}))\n"
        "    print('up', flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline() == "up\n"
    deadline, flow = time.monotonic() + WAIT, psutil.Process(parent.pid)
    # A service, an agent with its reaper, and the worker.
    while len(family := flow.children(recursive=True)) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(family) >= 4
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive, "something is left behind"
