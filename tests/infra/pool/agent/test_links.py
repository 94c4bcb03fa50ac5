"""How nodes find each other: the ring of a model's stages, round trips, and lost members."""

import secrets
import socket

import pytest

from infra.pool.agent.identity import p2p_seed
from infra.pool.agent.p2p import p2p_id
from infra.pool.wire import Location, NewShard, ShardsRequest

SILENCE = 600.0
"""Seconds after which this pool misses a node by itself; longer than a test waits."""


@pytest.fixture(scope="module")
def pool(make_pool):
    return make_pool(
        heartbeat=1.0, unhealthy_after=SILENCE, dead_after=2 * SILENCE, lease_seconds=SILENCE,
        stuck_seconds=10 * SILENCE, peer_lost_after=3.0,
    )  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_nodes_measure_each_other_before_they_are_a_group_and_miss_one_that_dies(pool):
    place = Location(latitude=48.0, longitude=11.0)
    agents = {}
    for _ in range(2):
        name = f"peer-{secrets.token_hex(2)}"
        address = f"127.0.0.1:{free_port()}"
        agents[address] = pool.agent(pool.invite(), name, address=address, location=place)

    def nodes() -> list:
        return [node for node in pool.nodes() if node["port"]]

    def seen() -> bool:
        found = {node["address"]: node for node in nodes()}
        return len(found) == 2 and all(
            set(node["rtt_ms"]) == set(found) - {address} for address, node in found.items()
        )

    pool.until(seen, "each has measured the other")
    assert all(node["group"] is None and node["location"]["latitude"] == 48 for node in nodes())
    assert all(0 < ms < 2000 for node in nodes() for ms in node["rtt_ms"].values())
    plugins = {"node_groups": {"allowed_topologies": ["pair"]}}
    task_id = pool.task(image="worker", sharded=True, scheduling_config={"plugins": plugins})
    shard = NewShard(shard_id=f"{task_id[:8]}.0", payload={"payload": {"sleep": 300}})
    pool.client.call("POST", f"/tasks/{task_id}/shards", ShardsRequest(shards=[shard]))
    pool.until(lambda: all((n["group"] or {}).get("shard_id") for n in nodes()), "they work")
    victim = nodes()[0]
    agents[f"127.0.0.1:{victim['port']}"].kill()
    pool.until(lambda: nodes()[0]["status"] == "Unhealthy", "its peer has missed it")
    assert nodes()[1]["status"] == "Healthy"
    pool.client.call("DELETE", f"/tasks/{task_id}")
    for node in nodes():
        pool.client.call("POST", f"/nodes/{node['address']}/ban")


def test_the_stages_of_a_group_form_a_ring_that_nobody_typed(pool, tmp_path):
    names = [f"stage-{secrets.token_hex(2)}" for _ in range(2)]
    for name in names:
        pool.agent(pool.invite(), name)
    # What the original's task gives a stage: its seed, and the id of the one that follows.
    cmd = [
        f"echo $1 $2 > {tmp_path}/$0.part; mv {tmp_path}/$0.part {tmp_path}/$0; sleep 600",
        "${GROUP_INDEX}", "${WORKER_P2P_SEED}", "${NEXT_P2P_ADDRESS}",
    ]  # fmt: skip
    plugins = {"node_groups": {"allowed_topologies": ["pair"]}}
    task_id = pool.task(image="shell", cmd=cmd, scheduling_config={"plugins": plugins})
    pool.until(lambda: len(list(tmp_path.glob("[01]"))) == 2, "both stages run")
    said = [(tmp_path / str(index)).read_text().split() for index in range(2)]
    seeds = {p2p_seed(pool.directory / f"{name}.key") for name in names}
    assert {int(seed) for seed, _ in said} == seeds
    for (seed, _), (_, following) in zip(said, reversed(said), strict=True):
        assert following == p2p_id(int(seed))
    pool.client.call("DELETE", f"/tasks/{task_id}")
