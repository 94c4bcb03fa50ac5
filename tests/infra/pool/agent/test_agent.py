"""One agent's life at the real service: in, at work, out; in order and not."""

import contextlib
import json
import signal

import psutil
import pytest

from infra.pool.agent.run import EXCLUDED, FAULT
from infra.pool.wire import Answer, NewShard, Results, ShardsRequest


def state_of(pool, number: int = -1) -> str:
    return pool.nodes()[number]["status"] if pool.nodes() else ""


def add(pool, task_id: str, *payloads: dict) -> None:
    shards = [
        NewShard(shard_id=f"{task_id[:8]}.{at}", payload={"kind": "x", "payload": payload})
        for at, payload in enumerate(payloads)
    ]
    pool.client.call("POST", f"/tasks/{task_id}/shards", ShardsRequest(shards=shards))


def results(pool, task_id: str) -> list:
    return pool.client.call("GET", f"/tasks/{task_id}/results", answer=Results).results


def workers(agent) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(agent.pid).children():
        with contextlib.suppress(psutil.Error):
            if any(part.endswith("node.py") for part in child.cmdline()):
                found.append(child)
    return found


@pytest.fixture
def one(pool):
    """An admitted agent, alone in the pool."""
    for agent in pool.agents:
        agent.kill()
        agent.wait()
    for node in pool.nodes():
        pool.client.call("POST", f"/nodes/{node['address']}/ban")
    name = f"agent-{len(pool.agents)}"
    agent = pool.agent(pool.invite(), name)
    pool.until(lambda: "is admitted" in pool.log(name), "the agent is admitted")
    yield agent, name
    if agent.poll() is None:
        agent.kill()
        agent.wait()


def test_without_an_invite_there_is_no_way_in(pool):
    agent = pool.agent("made up", "stranger")
    assert agent.wait(120) == EXCLUDED
    assert "BAD_INVITE" in pool.log("stranger")


def test_sigterm_finishes_the_shard_in_hand_and_leaves(pool, one):
    agent, _ = one
    task_id = pool.task(image="worker", sharded=True)
    add(pool, task_id, {"sleep": 3, "echo": {"n": 1}}, {"echo": {"n": 2}})
    pool.until(lambda: (pool.nodes()[-1]["group"] or {}).get("shard_id"), "the shard is leased")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(120) == 0
    rows = results(pool, task_id)
    assert [(row.state, row.output["n"]) for row in rows] == [("submitted", 1)]
    assert state_of(pool) == "Dead"
    pool.client.call("DELETE", f"/tasks/{task_id}")


def test_kill_9_leaves_no_child_and_the_shard_waits_again(pool, one):
    agent, name = one
    task_id = pool.task(image="worker", sharded=True)
    add(pool, task_id, {"sleep": 300})
    pool.until(lambda: workers(agent) != [], "the worker is there")
    family = psutil.Process(agent.pid).children(recursive=True)
    agent.kill()
    agent.wait()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    again = pool.agent("", name)
    pool.until(lambda: pool.log(name).count("is admitted") == 2, "it is admitted again")
    pool.until(lambda: workers(again) != [], "it works again")
    assert len([n for n in pool.nodes() if n["status"] == "Healthy"]) == 1
    pool.client.call("DELETE", f"/tasks/{task_id}")
    again.kill()


def test_an_idle_node_stands_by_and_takes_the_place_of_a_lost_one(pool, one):
    agents = [one[0]]
    for name in ("second", "third"):
        agents.append(pool.agent(pool.invite(), name))
        pool.until(lambda name=name: "is admitted" in pool.log(name), "it is admitted")
    plugins = {"node_groups": {"allowed_topologies": ["pair"]}}
    task_id = pool.task(image="worker", sharded=True, scheduling_config={"plugins": plugins})
    add(pool, task_id, *({"echo": {"n": n}} for n in range(2)))
    pool.until(lambda: len(results(pool, task_id)) == 2, "the pair works")
    pool.until(lambda: all(workers(agent) for agent in agents), "the third has loaded too")
    before = {workers(agent)[0].pid for agent in agents}
    members = [node for node in pool.nodes() if node["group"]]
    assert len(members) == 2
    pool.client.call("POST", f"/nodes/{members[1]['address']}/ban")
    add(pool, task_id, *({"echo": {"n": n}} for n in range(4)))
    pool.until(lambda: len(results(pool, task_id)) == 4, "it goes on")
    pool.until(lambda: sum(agent.poll() is None for agent in agents) == 2, "the banned one ends")
    after = {workers(agent)[0].pid for agent in agents if agent.poll() is None}
    # The spare has the worker of one rank; where the other rank was lost, it starts that one's.
    assert len(after) == 2 and after & before, "the member that stayed has another worker"
    pool.client.call("DELETE", f"/tasks/{task_id}")


def test_a_banned_node_ends_and_stays_out(pool, one):
    agent, name = one
    pool.until(lambda: state_of(pool) == "Healthy", "it is healthy")
    pool.client.call("POST", f"/nodes/{pool.nodes()[-1]['address']}/ban")
    assert agent.wait(120) == EXCLUDED
    assert pool.agent(pool.invite(), name).wait(120) == EXCLUDED


def test_an_image_that_it_does_not_know_ends_it(pool, one):
    agent, name = one
    task_id = pool.task(image="somebody/else", sharded=True)
    add(pool, task_id, {})
    assert agent.wait(120) == FAULT
    assert "'somebody/else' is not in this node's own list" in pool.log(name)
    pool.client.call("DELETE", f"/tasks/{task_id}")


STANDING = """
import hashlib, json, os, pathlib, socket, sys, time
data = b"rows of the node"
pathlib.Path("made.bin").write_bytes(data)
bridge = socket.socket(socket.AF_UNIX); bridge.connect(os.environ["PRIME_MONITOR__SOCKET__PATH"])
home = pathlib.Path(os.environ["PRIME_MONITOR__SOCKET__PATH"]).parent / "data"
(home / "made.bin").write_bytes(data)
bridge.sendall(json.dumps({"task_id": "t", "tokens": 42}).encode())
bridge.sendall(json.dumps({"output/save_path": "/data/made.bin",
    "output/sha256": hashlib.sha256(data).hexdigest()}).encode())
print("standing", sys.argv[1:], flush=True)
time.sleep(600)
"""


def test_a_standing_task_runs_reports_and_uploads(pool, one, tmp_path):
    agent, _ = one
    program = tmp_path / "program.py"
    program.write_text(STANDING)
    command = f"cd {tmp_path}; exec python3 -S {program} $0"
    task_id = pool.task(image="shell", cmd=[command, "${GROUP_INDEX}/${GROUP_SIZE}"])
    node = lambda: pool.nodes()[-1]  # noqa: E731
    pool.until(lambda: node()["task_state"] == "RUNNING", "it says that it runs")
    uploads = pool.directory / "root" / "uploads"
    pool.until(lambda: any(uploads.rglob("*-made.bin")), "its file is uploaded")
    assert next(uploads.rglob("*-made.bin")).read_bytes() == b"rows of the node"

    class Logs(Answer):
        logs: str | None = None

    path = f"/nodes/{node()['address']}/logs"
    pool.until(
        lambda: "standing ['0/1']" in json.dumps(pool.client.call("GET", path, answer=Logs).logs),
        "its log can be read",
    )
    running = [
        child
        for child in psutil.Process(agent.pid).children(recursive=True)
        if str(program) in child.cmdline()
    ]
    assert running
    pool.client.call("DELETE", f"/tasks/{task_id}")
    pool.until(lambda: node()["group"] is None, "its group is gone")
    _, alive = psutil.wait_procs(running, timeout=30)
    assert not alive and agent.poll() is None
