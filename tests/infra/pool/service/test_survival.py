"""The service is killed with -9 at bad moments; nothing is lost and nothing happens twice."""

import time
from concurrent.futures import ThreadPoolExecutor

from infra.pool.ledger import entries, verify
from infra.storage import Store


def test_kill_in_the_middle(service):
    task = service.task("work", shards=3)
    nodes = [service.node(), service.node()]
    groups = [node.group() for node in nodes]
    held = [node.shard(group) for node, group in zip(nodes, groups, strict=True)]
    captured = nodes[0].signed("POST", "/heartbeat", {"address": nodes[0].id})
    done = {"group_id": groups[0]["group_id"], "output": {"n": 1}, "seconds": 2.0}
    nodes[0].ask("POST", f"/shards/{held[0]}/result", done)

    service.kill()
    service.start()

    answer = nodes[0].send(captured)
    assert (answer.status_code, answer.json()["code"]) == (401, "WRONG_EPOCH")
    # The same leases in the same groups, also for who learned of his only from a lost answer.
    for node, group, shard in zip(nodes[1:], groups[1:], held[1:], strict=True):
        data = node.beat(group_id=group["group_id"], group_version=group["version"])
        assert (data["group"], data["shard_id"]) == (group, shard)
        assert node.ask("GET", f"/shards/{shard}")["payload"] == {"n": int(shard[-1])}
    # A result whose answer was lost comes again and is one result.
    nodes[0].ask("POST", f"/shards/{held[0]}/result", done)
    verdict = {"group_id": groups[0]["group_id"], "accepted": True}
    service.ask("POST", f"/shards/{held[0]}/verdict", verdict)
    service.ask("POST", f"/shards/{held[0]}/verdict", verdict, status=409)

    service.kill()
    service.start()

    for node, group in zip(nodes, groups, strict=True):
        shard = node.shard(group)
        node.ask("POST", f"/shards/{shard}/result", done | {"group_id": group["group_id"]})
        body = {"group_id": group["group_id"], "accepted": True}
        service.ask("POST", f"/shards/{shard}/verdict", body)
    rows = service.ask("GET", f"/tasks/{task}/results")["results"]
    assert [row["seq"] for row in rows] == sorted({row["seq"] for row in rows})
    for state in ("submitted", "done"):
        names = sorted(row["shard_id"] for row in rows if row["state"] == state)
        assert names == ["work-0", "work-1", "work-2"]
    view = next(t for t in service.ask("GET", "/tasks")["tasks"] if t["id"] == task)
    assert view["open_shards"] == 0

    service.ask("POST", f"/nodes/{nodes[1].id}/ban", {"reason": "seen"})
    store = Store(str(service.root))
    found = _wait_for(lambda: list(entries(store)), lambda e: e and e[-1].record.kind == "slash")
    assert verify(store).faults == []
    for kind in ("work", "verdict"):
        shards = [e.record.shard_id for e in found if e.record.kind == kind]
        mine = sorted(shard for shard in shards if shard.startswith("work-"))
        assert mine == ["work-0", "work-1", "work-2"]
    assert found[-1].record.node_id == nodes[1].id


def test_a_service_that_is_ended_leaves_no_record_behind(service):
    node = service.node()
    service.nodes.remove(node)
    service.ask("POST", f"/nodes/{node.id}/ban", {"reason": "its last second"})
    service.end()
    assert list(entries(Store(str(service.root))))[-1].record.node_id == node.id
    service.start()


def test_held_answers_come_before_the_end(service):
    node = service.node()
    service.nodes.remove(node)
    asked = {"address": node.id}
    asked |= {"wait_seconds": 30.0, "seen": node.ask("POST", "/heartbeat", asked)["etag"]}
    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(node.request, "POST", "/heartbeat", asked)
        time.sleep(1.0)
        assert not held.done()
        service.end()
        assert held.result().status_code == 200
    service.start()


def _wait_for(look, enough):
    for _ in range(200):
        found = look()
        if enough(found):
            return found
        time.sleep(0.1)
    raise AssertionError(found)
