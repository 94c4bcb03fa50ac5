"""Every rule earns its place: a bad sample that it alone catches, with the declared outcome."""

from __future__ import annotations

import os

import great_expectations as gx
import pytest
from mutations import KINDS, Kind

from data_contracts import engine, expectations, generate
from data_contracts.errors import ContractError, ExpectationFault
from data_contracts.report import Report
from data_contracts.rules import Contract, Rule, holds

CASES = [(kind, rule) for kind in KINDS for rule in KINDS[kind].changes]


def findings(report: Report) -> dict[str, str]:
    """Rule -> outcome."""
    found = {text.split(":")[0]: "block" for text in report.blocking}
    found |= {text.split(":")[0]: "warn" for text in report.warnings}
    for reasons in report.bad_rows.values():
        found |= {reason.split(":")[0]: "quarantine" for reason in reasons.split("; ")}
    return found


def bad_table(kind: Kind, rule: str):
    rows = kind.rows()
    kind.changes[rule](rows)
    return kind.table(rows)


@pytest.mark.parametrize("name", KINDS)
def test_good_rows_pass(name: str) -> None:
    kind = KINDS[name]
    assert kind.check(kind.table(kind.rows(32))) == Report(ok=True)


@pytest.mark.parametrize("name", KINDS)
def test_every_rule_has_a_bad_sample(name: str) -> None:
    kind = KINDS[name]
    assert {rule.name for rule in kind.contract.rules} == set(kind.changes)


@pytest.mark.parametrize(("name", "rule_name"), CASES)
def test_bad_sample_is_caught_by_its_rule_alone(name: str, rule_name: str) -> None:
    kind = KINDS[name]
    report = kind.check(bad_table(kind, rule_name))
    rule = next(rule for rule in kind.contract.rules if rule.name == rule_name)
    assert findings(report) == {rule_name: rule.outcome}
    assert report.ok == (rule.outcome == "warn")


@pytest.mark.parametrize("name", KINDS)
def test_without_the_rule_the_bad_sample_passes(name: str) -> None:
    kind = KINDS[name]
    rule_name = next(iter(kind.changes))
    rules = tuple(rule for rule in kind.contract.rules if rule.name != rule_name)
    used = {column for rule in rules for column in rule.columns}
    weaker = Contract(
        name="weaker",
        schema=kind.contract.schema,
        rules=rules,
        derived={k: v for k, v in kind.contract.derived.items() if k in used},
    )
    assert expectations.check(weaker, bad_table(kind, rule_name)).ok


@pytest.mark.parametrize("name", KINDS)
def test_the_fast_evaluation_agrees_with_the_public_one(name: str) -> None:
    kind = KINDS[name]
    for rule_name in (None, list(kind.changes)[-1]):
        table = kind.table(kind.rows()) if rule_name is None else bad_table(kind, rule_name)
        frame = expectations.frame_of(kind.contract, table)
        fast = {failure.rule.name for failure in engine.failures(kind.contract, frame)}
        suite = engine._SUITES[kind.contract]
        batch = engine._batch_definition().get_batch(batch_parameters={"dataframe": frame})
        names = {id(e): rule.name for e, rule in zip(suite.expectations, suite.rules, strict=True)}
        slow = {
            names[id(expectation)]
            for expectation in suite.expectations
            if not batch.validate(expectation, result_format="BOOLEAN_ONLY").success
        }
        assert fast == slow


def test_quarantine_names_exactly_the_bad_rows() -> None:
    kind = KINDS["traces"]
    rows = kind.rows()
    rows[1]["seed"] = 1
    rows[6]["seed"] = 1
    rows[6]["engine"] = " "
    report = kind.check(kind.table(rows))
    assert report.bad_rows == {
        1: "seed_recomputes: the seed comes from the trace id",
        6: "engine_form: must not be blank; seed_recomputes: the seed comes from the trace id",
    }


def test_trace_ids_recompute_with_the_seed_of_the_run() -> None:
    kind = KINDS["traces"]
    rows = kind.rows()
    assert generate.validate(kind.table(rows), run_seed=7).ok
    assert set(generate.validate(kind.table(rows), run_seed=8).bad_rows) == set(range(8))
    rows[3]["sample_index"] = 1
    assert set(generate.validate(kind.table(rows), run_seed=7).bad_rows) == {3}


def test_a_fault_of_the_machinery_is_not_a_finding() -> None:
    kind = KINDS["verdicts"]
    frame = expectations.frame_of(kind.contract, kind.table(kind.rows()))
    with pytest.raises(ExpectationFault, match="says nothing about the data"):
        engine.failures(kind.contract, frame.drop(columns=["verdict"]))
    broken = Contract(
        name="broken",
        schema=kind.contract.schema,
        rules=(holds("flag", "block", "never"),),
        derived={"flag": lambda rows: [1 / 0]},
    )
    with pytest.raises(ExpectationFault, match="'flag' failed"):
        expectations.check(broken, kind.table(kind.rows()))


def test_declarations_are_checked() -> None:
    with pytest.raises(ContractError, match="was not tried"):
        Rule("x", "UnexpectedRowsExpectation", {"column": "a"}, "warn", "")
    with pytest.raises(ContractError, match="must be block or warn"):
        Rule("x", "ExpectColumnMeanToBeBetween", {"column": "a"}, "quarantine", "")
    schema = KINDS["verdicts"].contract.schema
    with pytest.raises(ContractError, match=r"unknown columns \['nope'\]"):
        Contract("x", schema, (holds("nope", "block", ""),))


def test_nothing_is_sent_or_printed(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    kind = KINDS["verdicts"]
    kind.check(bad_table(kind, "verdict_known"))
    assert capfd.readouterr() == ("", "") and not caplog.records
    assert os.environ["GX_ANALYTICS_ENABLED"] == "false"
    assert gx.__version__.startswith("1.")
