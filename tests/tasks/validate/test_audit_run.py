"""A part of the shards audited, a node that turns into a liar, and what a run does about it."""

import itertools
from dataclasses import replace

import pytest

from data_contracts import collect as tasks_contract
from data_contracts import generate as traces_contract
from data_contracts import validate as verdicts_contract
from data_contracts.ids import model_slug
from data_contracts.text import table_from_rows
from infra.pool import JobResult
from infra.pool.ledger import Ledger, Slash
from infra.storage import (
    RunLayout,
    commit_table,
    list_committed,
    read_manifest,
    read_table,
)
from tasks.validate import audit, stage
from tasks.validate.audit import SECRET, Auditor, Finding, Records
from tasks.validate.commit import commit_verdicts
from tasks.validate.config import AuditConfig, ValidateConfig
from tasks.validate.revoke import revoke, to_revoke
from tasks.validate.stage import Validator
from toploc.transcript import Transcript

LAYOUT = RunLayout("r")
MODEL = "tracemill/nano-s"
SLUG = model_slug(MODEL)
CONFIG = ValidateConfig(audit=AuditConfig(floor=0.4, halving=1))


def verdicts_of(planned, shard) -> list[str]:
    return read_table(planned, LAYOUT.verdicts(SLUG, shard.shard_id))["verdict"].to_pylist()


def test_unaudited_shards_of_a_caught_liar_are_revoked_and_made_again(
    planned, pool, generator, shards, monkeypatch
):
    # The liar makes every second shard, from its fourth on with lies. Three shards are not looked
    # at: an honest one of the liar, one of the honest node, and the first lie.
    unseen = {shards[number].shard_id for number in (2, 3, 6)}
    monkeypatch.setattr(audit, "draw", lambda key, name, sha256: 0.99 * (name in unseen))
    validator = Validator(planned, LAYOUT, CONFIG, pool)
    for shard in shards:
        generator.run(shard)
        validator.run(shard)
    liar = pool.liar.key.node_id
    assert pool.distrusted == [liar]
    ((reason, evidence),) = pool.charges
    assert reason.startswith("2 traces of ") and len(evidence["reasons"]) == 2
    assert read_manifest(planned, evidence["traces"]).sha256 == evidence["traces_sha256"]
    for number, shard in enumerate(shards):
        path = LAYOUT.verdicts(SLUG, shard.shard_id)
        noted = read_manifest(planned, path).info["audit"]
        assert noted["audited"] == (shard.shard_id not in unseen)
        assert noted["failed"] == (number == 8)
        rejected = 2 * [{True: "rejected", False: "accepted"}[number == 8]]
        expected = rejected if noted["audited"] else ["accepted_unaudited"] * 2
        assert verdicts_of(planned, shard) == expected, number

    # Everything that the liar was believed without a look, and nothing of anybody else.
    wrong = to_revoke(planned, LAYOUT, shards)
    assert wrong == [shards[2], shards[6]]
    before = {
        shard.shard_id: read_table(planned, LAYOUT.traces(SLUG, shard.shard_id)) for shard in wrong
    }
    for shard in wrong:
        revoke(planned, LAYOUT, shard)
        assert read_manifest(planned, LAYOUT.traces(SLUG, shard.shard_id)) is None
        assert read_manifest(planned, LAYOUT.verdicts(SLUG, shard.shard_id)) is None
    records = list_committed(planned, f"{LAYOUT.root}/revoked")
    assert {record.info["shard"] for record in records} == {shard.shard_id for shard in wrong}
    for record in records:
        rows = read_table(planned, record.path).to_pylist()
        assert {row["verdict"] for row in rows} == {"revoked"}
        assert {row["trace_id"] for row in rows} == set(
            before[record.info["shard"]]["trace_id"].to_pylist()
        )
    evidence = list_committed(planned, f"{LAYOUT.root}/quarantine/revoke")
    assert sum(manifest.rows for manifest in evidence) == sum(r.rows for r in records)

    assert to_revoke(planned, LAYOUT, shards) == []
    for shard in wrong:
        generator.run(shard)
        validator.run(shard)
        nodes = read_table(planned, LAYOUT.traces(SLUG, shard.shard_id))["node_id"].to_pylist()
        assert liar not in nodes
        assert verdicts_of(planned, shard) in (["accepted"] * 2, ["accepted_unaudited"] * 2)
    assert to_revoke(planned, LAYOUT, shards) == []


def test_a_resumed_run_keeps_its_choices_and_its_records(planned, pool, generator, shards):
    validator = Validator(planned, LAYOUT, CONFIG, pool)
    shards = shards[:8]
    for shard in shards:
        generator.run(shard)
    taken = []
    for shard in shards[:4]:
        validator.run(shard)
    auditor = Auditor(planned, LAYOUT, CONFIG.audit)
    for shard in shards[4:]:
        traces = read_manifest(planned, LAYOUT.traces(SLUG, shard.shard_id))
        node_id = read_table(planned, traces.path)["node_id"][0].as_py()
        taken.append(auditor.decide(SLUG, shard.shard_id, traces, node_id))
        # Killed here, and everybody's record has become better since: the choice stands.
        for other in list_committed(planned, f"{LAYOUT.root}/verdicts"):
            auditor.note(other)
        assert auditor.decide(SLUG, shard.shard_id, traces, node_id) == taken[-1]
    resumed = Validator(planned, LAYOUT, CONFIG, pool)
    for shard, decision in zip(shards[4:], taken, strict=True):
        noted = resumed.run(shard).info["audit"]
        assert noted["audited"] == decision.audited and noted["rate"] == decision.rate
    other = Auditor(planned, LAYOUT, CONFIG.audit)
    assert other.records == resumed._auditor.records


def test_records_reach_all_runs_of_a_root_and_so_does_an_exclusion(
    planned, pool, generator, shards, monkeypatch
):
    monkeypatch.setattr(audit, "draw", lambda key, name, sha256: 0.99 * (name in unseen))
    unseen = {shard.shard_id for shard in shards[4:6]}
    validator = Validator(planned, LAYOUT, CONFIG, pool)
    for shard in shards[:6]:
        generator.run(shard)
        validator.run(shard)
    nodes = [pool.ours.key.node_id, *(node.key.node_id for node in pool.strangers)]
    elsewhere = Auditor(planned, RunLayout("another"), CONFIG.audit)
    assert {node: elsewhere.records.honest[node, 0] for node in nodes[1:]} == dict.fromkeys(
        nodes[1:], 2
    )
    assert to_revoke(planned, LAYOUT, shards) == []
    # One of them is excluded for what it did in a run that commits no such tables.
    caught_node = read_table(planned, LAYOUT.traces(SLUG, shards[5].shard_id))["node_id"][0].as_py()
    Ledger(planned).append(Slash(node_id=caught_node, reason="lied"))
    assert to_revoke(planned, LAYOUT, shards) == [shards[5]]
    # And the other one is caught in another run.
    done = read_manifest(planned, LAYOUT.verdicts(SLUG, shards[4].shard_id))
    noted = done.info["audit"] | {"audited": True, "failed": True, "failures_before": 0}
    commit_table(
        planned, RunLayout("another").verdicts(SLUG, "x" * 32), read_table(planned, done.path),
        schema=verdicts_contract.SCHEMA, producer="test", info=done.info | {"audit": noted},
    )  # fmt: skip
    assert to_revoke(planned, LAYOUT, shards) == [shards[4], shards[5]]
    fresh = Auditor(planned, LAYOUT, CONFIG.audit)
    assert [fresh.records.failures[node] for node in nodes] == [0, 1, 1]


def test_traces_that_changed_since_are_chosen_anew(planned):
    auditor = Auditor(planned, LAYOUT, CONFIG.audit)
    done = commit_table(
        planned, "t/a", table_from_rows([], tasks_contract.SCHEMA),
        schema=tasks_contract.SCHEMA, producer="test",
    )  # fmt: skip
    first = auditor.decide(SLUG, "s" * 32, done, "n")
    again = auditor.decide(SLUG, "s" * 32, replace(done, sha256="0" * 64), "n")
    assert first.traces_sha256 == done.sha256 and again.traces_sha256 == "0" * 64


def test_without_a_floor_everything_is_audited_and_no_secret_is_made(planned, tmp_path):
    (tmp_path / "config" / "tracemill" / SECRET).unlink()
    done = commit_table(
        planned, "t/a", table_from_rows([], tasks_contract.SCHEMA),
        schema=tasks_contract.SCHEMA, producer="test",
    )  # fmt: skip
    assert Auditor(planned, LAYOUT, AuditConfig()).decide(SLUG, "s" * 32, done, "n").audited
    assert not (tmp_path / "config" / "tracemill" / SECRET).exists()


def test_an_honest_refusal_catches_nobody():
    numbers = itertools.count()

    def row(verdict, *reasons):
        number = str(next(numbers))
        return {
            "trace_id": number, "verdict": verdict, "reasons": list(reasons), "figures": "{}",
        }  # fmt: skip

    honest = [
        row("accepted"), row("accepted_unaudited"), row("crashed", "validator:RuntimeError"),
        row("rejected", "prompt_too_long"), row("rejected", "engine_error"),
    ]  # fmt: skip
    soft = row("rejected", "outside_calibration: 'x' was never seen", "exp_mismatches: 9")
    soft["figures"] = '{"soft": true}'

    def beyond():
        refused = row("rejected", "margin_mean: 0.3, allowed is 0.0005")
        return refused | {"figures": '{"refusal_rate": 1e-4}'}

    def said(*rows, accepted=0, before=()):
        known = Records()
        known.accepted["n"] = accepted
        known.beyond["n"] = dict.fromkeys(before, 1e-4)
        finding = Finding.of(rows)
        return finding.failed, known.prove_lies("n", finding)

    assert said(*honest) == (False, False)
    assert said(*honest, before=["a", "b"]) == (False, False)
    assert said(*honest, soft) == said(*[soft] * 9) == (True, False)
    assert said(row("rejected", "proof_missing")) == (True, True)
    replayed = row("rejected", "engine_error", "replayed: chunk 2 is chunk 1")
    assert said(*honest, replayed) == (True, True)
    # Limits refuse an honest trace now and then, but not two of two, nor one after another.
    assert said(*honest, beyond()) == (True, False)
    assert said(*[row("accepted")] * 20, beyond(), beyond()) == (True, False)
    assert said(beyond(), beyond()) == (True, True)
    assert said(*honest, beyond(), accepted=50, before=["a", "b", "c"]) == (True, True)
    # The same trace again says nothing new.
    again = beyond()
    assert said(again, again, before=[again["trace_id"]]) == (True, False)


def test_what_limits_refused_adds_up_over_shards_and_restarts(planned, pool, generator, shards):
    validator = Validator(planned, LAYOUT, ValidateConfig(), pool)
    committed = []
    for shard in shards[:2]:
        generator.run(shard)
        traces = read_manifest(planned, LAYOUT.traces(SLUG, shard.shard_id))
        decision = validator._auditor.decide(SLUG, shard.shard_id, traces, "n")
        rows = [
            {"trace_id": trace_id, "verdict": "accepted", "reasons": [], "figures": "{}"}
            for trace_id in read_table(planned, traces.path)["trace_id"].to_pylist()
        ]
        rows[0] |= {
            "verdict": "rejected",
            "reasons": ["margin_mean: 0.3, allowed is 0.0005"],
            "figures": '{"refusal_rate": 1e-4}',
        }
        finding = Finding.of(rows)
        # A new auditor is what a killed run starts with.
        known = Auditor(planned, LAYOUT, AuditConfig())
        for auditor in (validator._auditor, known):
            lied = auditor.proves_lies("n", finding)
            assert lied == (len(committed) == 1), (len(committed), finding)
            assert not auditor.proves_lies("another", finding)
        result = JobResult("x", "n", {"verdicts": rows}, 0.0, ())
        manifest = commit_verdicts(
            planned, LAYOUT, shard, traces, result, ValidateConfig(), decision, producer="test"
        )
        validator._auditor.note(manifest)
        committed.append(manifest)


def test_a_liar_is_excluded_though_the_run_dies_before_its_verdicts_are_committed(
    planned, pool, generator, shards, monkeypatch
):
    pool.strangers, pool.liar._batches = [pool.liar], 99
    generator.run(shards[0])

    def dies(*arguments, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(stage, "commit_verdicts", dies)
        Validator(planned, LAYOUT, ValidateConfig(), pool).run(shards[0])
    assert pool.distrusted == [pool.liar.key.node_id]
    assert read_manifest(planned, LAYOUT.verdicts(SLUG, shards[0].shard_id)) is None
    assert Validator(planned, LAYOUT, ValidateConfig(), pool).run(shards[0]).info["audit"]["failed"]


def test_an_unaudited_shard_that_is_plainly_wrong_is_audited(planned, pool, generator, shards):
    config = ValidateConfig(audit=AuditConfig(floor=1e-9, halving=1))
    validator = Validator(planned, LAYOUT, config, pool)
    auditor = validator._auditor
    shards = shards[:2]
    for shard in shards:
        path = generator.run(shard).path
        node_id = read_table(planned, path)["node_id"][0].as_py()
        auditor.records.honest[node_id, 0] = 10**12
    assert not validator.run(shards[0]).info["audit"]["audited"]
    rows = read_table(planned, path).to_pylist()
    (node,) = (node for node in pool.strangers if node.key.node_id == node_id)
    rows[0]["proofs"] = b""
    rows[0]["transcript_hash"], rows[0]["signature"] = Transcript.of_row(rows[0]).sign(node.key)
    planned.delete(f"{path}.json")
    planned.delete(f"{path}.parquet")
    table = table_from_rows(rows, traces_contract.SCHEMA)
    commit_table(planned, path, table, schema=traces_contract.SCHEMA, producer="liar")
    noted = validator.run(shards[1]).info["audit"]
    assert noted["audited"] and noted["failed"]
    assert verdicts_of(planned, shards[1]) == ["rejected", "accepted"]
    assert pool.distrusted == [node_id]
