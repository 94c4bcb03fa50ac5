"""What an honest upload becomes."""

from swarm import Node, make_job

from data_contracts import rollouts as contract
from infra.pool.ledger import entries
from infra.storage import read_table


def test_honest_rollouts_are_committed_once_with_our_rewards(start):
    run = start([Node(1)])
    job = make_job()
    manifest = run.take(job)
    rows = read_table(run.store, manifest.path).to_pylist()
    assert manifest.path == f"runs/r/rl/rollouts/step_2/{job.name}"
    assert len(rows) == job.samples == 8
    assert contract.validate(read_table(run.store, manifest.path)).ok
    for group in (0, 1):
        rewards = [row["rewards"] for row in rows if row["group"] == group]
        advantages = [row["advantages"] for row in rows if row["group"] == group]
        assert rewards == [row["task_rewards"] for row in rows if row["group"] == group]
        assert abs(sum(advantages)) < 1e-5
    assert {row["step"] for row in rows} == {1}
    assert run.take(job) == manifest
    assert run.store.list("uploads") == []
    assert run.store.list("runs/r/received") == []
    # The pool books the work and the verdict.
    assert list(entries(run.store)) == []


def test_the_newest_version_that_may_be_used_is_used(start):
    run = start([Node(1)])
    for number, (least, most, used) in enumerate([(0, 2, 2), (0, 3, 3), (0, 0, 0), (1, 2, 2)]):
        rows = read_table(run.store, run.take(make_job(3, number, least, most)).path).to_pylist()
        assert {row["step"] for row in rows} == {used}
