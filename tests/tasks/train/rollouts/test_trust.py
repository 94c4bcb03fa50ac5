"""Audits of a share, copies, what is taken back, accidents, restarts."""

import os
import signal
import threading

import pytest
from swarm import Node, make_job, packed, resigned, upload_rows
from test_liars import another_version

from infra.pool.ledger import entries
from infra.storage import read_table
from tasks.train.rollouts.config import TrustConfig
from tasks.train.rollouts.copies import KEPT_STEPS
from tasks.train.rollouts.errors import CheckCrashed, RolloutsRefused
from tasks.train.rollouts.standing import EXCLUDED, Standing
from tasks.validate.config import AuditConfig, ValidateConfig

BASE = "tracemill/nano-s"
SHARE = TrustConfig(
    calibrated_by=BASE, check=ValidateConfig(audit=AuditConfig(floor=0.01, halving=1))
)
COPIED = ("output_tokens", "output_logprobs", "proofs", "completion", "finish_reason")


@pytest.fixture
def unlucky(monkeypatch):
    """Chance that looks at a node's first upload and at no later one, unless there is a reason."""
    monkeypatch.setattr("tasks.validate.audit.draw", lambda *commitment: 0.9)


def kinds(run) -> list[str]:
    return [entry.record.kind for entry in entries(run.store)]


def audits(run) -> list[bool]:
    return [job.payload["audited"] for job in run.pool.checks]


def test_what_was_believed_of_a_node_is_taken_back_when_it_is_caught(start, unlucky):
    node = Node(1)
    trained = make_job(step=1, number=1)
    run = start([node], config=SHARE, final=lambda job: job.step == 1)
    checked, believed = make_job(number=0), make_job(number=2)
    for job in (checked, trained, believed):
        manifest = run.take(job)
    assert audits(run) == [True, False, False]
    node.lie = lambda rows, payload, key: [row | {"completion": "pmal"} for row in rows]
    with pytest.raises(RolloutsRefused):
        run.take(make_job(number=4))
    assert run.intake.accepted.of(believed) is None
    assert run.intake.accepted.of(checked) and run.intake.accepted.of(trained)
    slash, taken_back = [entry.record for entry in entries(run.store)]
    assert (slash.kind, slash.node_id) == ("slash", node.key.node_id)
    assert (taken_back.kind, taken_back.shard_id) == ("hard_invalidation", believed.name)
    assert taken_back.evidence["files"] == manifest.info["files"]
    with pytest.raises(RolloutsRefused) as refusal:
        run.take(make_job(number=5))
    assert refusal.value.reasons == [EXCLUDED]


def test_an_unchecked_lie_stands_until_its_node_is_caught_after_a_restart(start, unlucky):
    node = Node(1)
    run = start([node], config=SHARE)
    run.take(make_job(number=0))
    node.lie = another_version
    lie = make_job(number=1)
    assert run.take(lie).info["audited"] is False
    again = start([node], config=SHARE)
    assert again.intake.accepted.of(lie) is not None
    node.lie = lambda rows, payload, key: rows[:-1]
    with pytest.raises(RolloutsRefused):
        again.take(make_job(number=2))
    assert again.intake.accepted.of(lie) is None
    third = start([node, Node(2)], config=SHARE)
    with pytest.raises(RolloutsRefused) as refusal:
        third.take(make_job(number=3))
    assert refusal.value.reasons == [EXCLUDED]
    assert third.take(lie).info["node_id"] == Node(2).key.node_id


def thief(stolen):
    """Gives the stolen answers for its own samples."""

    def steal(rows, payload, key):
        return [
            resigned(row, key, **{name: other[name] for name in COPIED})
            for row, other in zip(rows, stolen, strict=True)
        ]

    return steal


def with_records(start, unlucky):
    """A run where one honest node and a later thief have each been checked once."""
    honest, robber = Node(1), Node(2)
    run = start([honest, robber], config=SHARE)
    run.take(make_job(number=1))
    run.take(make_job(number=2))
    return run, robber


def test_a_copy_of_an_earlier_answer_is_looked_at_and_found(start, unlucky):
    run, robber = with_records(start, unlucky)
    manifest = run.take(make_job(number=0, temperature=3.0))
    robber.lie = thief(read_table(run.store, manifest.path).to_pylist())
    with pytest.raises(RolloutsRefused, match="copied") as refusal:
        run.take(make_job(number=3, temperature=3.0))
    assert refusal.value.lie
    assert audits(run) == [True, True, False, True]


def test_a_thief_who_was_faster_is_found_when_the_owner_comes(start, unlucky):
    run, robber = with_records(start, unlucky)
    owned, stolen = make_job(number=0, temperature=3.0), make_job(number=3, temperature=3.0)
    result = run.made(owned)
    (file,) = result.files
    rows = upload_rows(run.store.read_bytes(file.path))
    robber.lie = thief(rows)
    assert run.take(stolen).info["audited"] is False
    assert run.intake.take(owned, result).info["audited"] is True
    assert run.intake.accepted.of(stolen) is None
    assert run.pool.distrusted == [robber.key.node_id]
    assert kinds(run) == ["slash", "hard_invalidation"]


def test_equal_short_answers_are_nobodys_copies(start):
    run = start([Node(1), Node(2)])
    run.take(make_job(number=0))
    run.take(make_job(number=3, temperature=0.0))
    run.take(make_job(number=6, temperature=0.0))
    assert kinds(run) == []


def test_a_second_answer_to_a_job_changes_nothing(start):
    run = start([Node(1), Node(2)])
    job = make_job()
    first, second = run.made(job), run.made(job)
    manifest = run.intake.take(job, first)
    assert run.intake.take(job, second) == manifest
    assert manifest.info["node_id"] == Node(1).key.node_id
    assert run.store.list("uploads") == []


def failing(*places):
    """Says that its engine failed at some rows."""

    def fail(rows, payload, key):
        for place in places:
            rows[place] = resigned(
                rows[place], key, output_tokens=[], output_logprobs=[], proofs=b"", completion="",
                status="engine_error", finish_reason="error", error="out of memory",
            )  # fmt: skip
        return rows

    return fail


def test_a_group_with_a_row_that_failed_honestly_teaches_nothing_and_the_others_go_on(start):
    """Else a node would choose what its samples are compared with."""
    run = start([Node(1, failing(3))])
    job = make_job(temperature=3.0)
    manifest = run.take(job)
    assert manifest.info["counts"]["reasons"] == {"engine_error": 1}
    rows = read_table(run.store, manifest.path).to_pylist()
    advantages = {group.group: [] for group in job.groups}
    for row in rows:
        assert row["rewards"] is not None
        advantages[row["group"]].append(row["advantages"])
    first, second = advantages.values()
    assert first == [None] * 3 and len(second) == 4 and None not in second
    assert run.pool.distrusted == []


def test_a_node_that_fails_at_many_rows_is_refused_as_a_whole_and_did_not_lie(start):
    run = start([Node(1, failing(2, 3))])
    with pytest.raises(RolloutsRefused, match="too_many_failed: 2 of 8 samples") as refusal:
        run.take(make_job())
    assert refusal.value.strike and not refusal.value.lie
    assert (run.pool.distrusted, run.pool.checks) == ([], [])


def test_what_is_old_and_final_is_forgotten(start, unlucky):
    run = start([Node(1)], config=SHARE, final=lambda job: job.step <= 2)
    for job in (make_job(number=0), make_job(number=1, temperature=3.0)):
        manifest = run.take(job)
    rows = read_table(run.store, manifest.path).to_pylist()
    others = [row | {"sample_id": f"other {row['sample_id']}"} for row in rows]
    assert run.intake.accepted._seen.repeated(others, "elsewhere")
    assert list(run.intake.accepted._unchecked) == [job.name]
    run.take(make_job(step=2 + KEPT_STEPS, number=2, temperature=3.0))
    assert run.intake.accepted._seen.repeated(others, "elsewhere") == {}
    assert job.name not in run.intake.accepted._unchecked


def test_what_cannot_be_scored_is_null_and_in_no_statistic(start):
    run = start([Node(1)])
    rows = read_table(run.store, run.take(make_job(task_type="no_such_kind")).path).to_pylist()
    assert {row["rewards"] for row in rows} == {row["advantages"] for row in rows} == {None}


def test_weights_that_are_not_to_be_had_are_nobodys_lie(start, broadcast):
    run = start([Node(1), Node(2)])
    gone = broadcast.model_copy(update={"stream": "elsewhere", "wait_seconds": 0.2})
    trusted = run.intake._trusted
    run.intake._trusted = type(trusted)(**(trusted.__dict__ | {"broadcast": gone}))
    with pytest.raises(RolloutsRefused, match="no_version") as refusal:
        run.take(make_job())
    assert not refusal.value.lie
    assert kinds(run) == []
    run.intake._trusted = trusted
    run.take(make_job())


@pytest.mark.parametrize(
    "damage",
    ["cut", *(pytest.param(d, marks=pytest.mark.slow) for d in ("missing", "other bytes", "none"))],
)
def test_a_file_that_may_have_been_damaged_excludes_nobody(start, damage):
    run = start([Node(1)])
    job = make_job()
    if damage == "cut":
        run.pool.strangers[0].lie = lambda rows, payload, key: packed(rows)[:-100]
    result = run.made(job)
    (file,) = result.files
    if damage == "missing":
        run.store.delete(file.path)
    elif damage == "other bytes":
        run.store.write_bytes(file.path, b"x", overwrite=True)
    elif damage == "none":
        result = type(result)(result.job_id, result.node_id, result.output, 1.0)
    with pytest.raises(RolloutsRefused) as refusal:
        run.intake.take(job, result)
    assert not refusal.value.lie
    run.pool.strangers[0].lie = None
    assert run.take(job).rows == 8


def test_a_reader_that_dies_is_replaced(start, upload_reader):
    run = start([Node(1)])
    job = make_job()
    result = run.made(job)
    os.kill(upload_reader._child.submit(os.getpid).result(), signal.SIGKILL)
    with pytest.raises(RolloutsRefused, match="unreadable_upload") as refusal:
        run.intake.take(job, result)
    assert not refusal.value.lie
    assert run.take(job).rows == 8


def test_a_check_whose_nodes_die_is_done_by_others(start):
    run = start([Node(1)])
    run.pool.failing = 2
    assert run.take(make_job()).rows == 8
    run.pool.failing = 3
    with pytest.raises(CheckCrashed, match="its nodes died"):
        run.take(make_job(number=1))
    assert kinds(run) == [] and run.store.list("uploads") == []


def test_nothing_is_taken_back_while_rollouts_are_chosen(start, unlucky):
    node = Node(1)
    run = start([node], config=SHARE)
    run.take(make_job(number=0))
    believed = make_job(number=2)
    run.take(believed)
    reader = threading.Thread(target=run.intake.accepted.withdraw, args=(node.key.node_id,))
    with run.intake.accepted.steady:
        reader.start()
        reader.join(0.3)
        assert reader.is_alive() and run.store.exists(f"{run.intake.accepted.path(believed)}.json")
    reader.join(60)
    assert run.intake.accepted.of(believed) is None


def test_excluded_in_one_run_is_excluded_in_all_of_a_root(start):
    run = start([Node(1)])
    run.pool.distrust("node-2", "forged_rewards: 1", {})
    assert Standing(run.store, "c").excluded == {"node-2"}


def test_what_a_killed_run_did_not_take_back_is_taken_back_by_the_next(start, unlucky, monkeypatch):
    node = Node(1)
    run = start([node], config=SHARE)
    run.take(make_job(number=0))
    node.lie = another_version
    lie = make_job(number=1)
    assert run.take(lie).info["audited"] is False
    node.lie = lambda rows, payload, key: rows[:-1]

    def dies(node_id):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(run.intake.accepted, "withdraw", dies)
        run.take(make_job(number=2))
    again = start([node, Node(2)], config=SHARE)
    assert again.intake.accepted.of(lie) is None
    assert again.intake.accepted.of(make_job(number=0)) is not None
