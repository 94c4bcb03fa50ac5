"""How nodes find each other: the ring of a model's stages."""

import secrets

from infra.pool.agent.identity import p2p_seed
from infra.pool.agent.p2p import p2p_id


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
