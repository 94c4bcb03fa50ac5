import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from infra.pool import Job, JobFailed, LocalPool, NodeLost, PoolClosed

NODE = [sys.executable, "-S", str(Path(__file__).with_name("node.py"))]


@pytest.fixture
def pool():
    with LocalPool(2, NODE) as started:
        yield started


def job(job_id: str, priority: int = 0, **payload) -> Job:
    return Job(job_id, "any", payload, priority)


def test_results_come_back_to_their_jobs(pool):
    futures = [pool.submit(job(f"j{n}", echo={"n": n})) for n in range(20)]
    results = [future.result(30) for future in futures]
    assert [result.output["n"] for result in results] == list(range(20))
    assert [result.job_id for result in results] == [f"j{n}" for n in range(20)]
    assert sum(node.jobs_done for node in pool.nodes()) == 20


def test_lower_priority_numbers_go_first(tmp_path):
    log = tmp_path / "log"
    with LocalPool(1, NODE) as pool:
        first = pool.submit(job("hold", sleep=0.5))
        late = [
            pool.submit(job(name, priority, log=str(log), name=name))
            for name, priority in [("a", 0), ("b", 0), ("urgent", -1)]
        ]
        for future in [first, *late]:
            future.result(30)
    assert log.read_text().split() == ["urgent", "a", "b"]


def test_an_exception_on_a_node_fails_that_job_only(pool):
    bad, good = pool.submit(job("bad", **{"raise": "no such model"})), pool.submit(job("good"))
    with pytest.raises(JobFailed, match=r"bad failed on node local-\d: ValueError: no such model"):
        bad.result(30)
    assert good.result(30).job_id == "good"


def test_a_job_survives_the_death_of_its_node(pool, tmp_path):
    mark = tmp_path / "tries"
    result = pool.submit(job("hard", die_until=str(mark), times=2, echo={"ok": 1})).result(30)
    assert result.output["ok"] == 1
    assert mark.read_text() == "xxx"
    assert sum(node.restarts for node in pool.nodes()) == 2


def test_a_job_that_kills_every_node_is_given_up_with_the_last_words(pool, tmp_path):
    future = pool.submit(job("deadly", die_until=str(tmp_path / "tries"), times=99))
    with pytest.raises(NodeLost, match=r"3 nodes in a row.*out of memory, said the node") as lost:
        future.result(30)
    assert lost.value.retryable
    assert pool.submit(job("next")).result(30).job_id == "next"


def test_a_result_names_the_key_that_its_node_said(pool):
    results = [pool.submit(job(f"j{n}", sleep=0.05)).result(30) for n in range(4)]
    known = {node.node_id: node for node in pool.nodes()}
    assert {result.node_id for result in results} <= known.keys()
    assert [node.name for node in pool.nodes()] == ["local-0", "local-1"]
    assert len(known) == 2


def test_a_node_that_replaces_another_one_is_another_node(tmp_path):
    with LocalPool(1, NODE) as pool:
        first = pool.submit(job("first")).result(30)
        second = pool.submit(job("hard", die_until=str(tmp_path / "t"), times=1)).result(30)
        assert pool.nodes()[0].node_id == second.node_id != first.node_id


@pytest.mark.parametrize("says", ["local-0", "01" + "00" * 31, "F" * 64, ""])
def test_a_node_without_a_key_gets_no_job(says, tmp_path):
    log = tmp_path / "log"
    with LocalPool(1, NODE, {"NODE_SAYS": says}) as pool:
        with pytest.raises(NodeLost):
            pool.submit(job("j", log=str(log), name="ran")).result(30)
    assert not log.exists()


def test_kill_9_of_a_node_in_the_middle_of_a_job(pool):
    futures = [pool.submit(job(f"j{n}", sleep=0.4, echo={"n": n})) for n in range(4)]
    time.sleep(0.2)
    for node in psutil.Process().children():
        if str(NODE[-1]) in node.cmdline():
            node.kill()
            break
    assert [future.result(30).output["n"] for future in futures] == [0, 1, 2, 3]


def test_close_ends_the_nodes_and_what_waits():
    pool = LocalPool(1, NODE)
    with pool:
        running, waiting = pool.submit(job("a", sleep=60)), pool.submit(job("b"))
        time.sleep(0.2)
        pids = [node.pid for node in psutil.Process().children() if NODE[-1] in node.cmdline()]
    for future in (running, waiting):
        with pytest.raises(PoolClosed):
            future.result(5)
    assert pids and not any(psutil.pid_exists(pid) for pid in pids)
    with pytest.raises(PoolClosed, match="start it"):
        pool.submit(job("late"))


def test_nodes_do_not_outlive_a_killed_flow():
    code = (
        "import sys, time\n"
        "from infra.pool import Job, LocalPool\n"
        f"with LocalPool(2, {NODE!r}) as pool:\n"
        "    jobs = [pool.submit(Job(str(n), 'any', {'sleep': 60})) for n in range(2)]\n"
        "    print('up', flush=True)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline() == "up\n"
    nodes = psutil.Process(parent.pid).children()
    assert len(nodes) == 2
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(nodes, timeout=10)
    assert not alive, "nodes are left behind"


def test_a_pool_needs_a_node():
    with pytest.raises(ValueError, match="nodes is 0"):
        LocalPool(0, NODE)
