"""Layout, quarantine and reconciliation: every row has a place and a count."""

from __future__ import annotations

import json

import pytest

from data_contracts import quarantine as contract
from infra.storage import RunLayout, StageCount, Store, check, quarantine_rows, read_table
from infra.storage.errors import BadPath, CountMismatch
from infra.storage.reconcile import from_info

LAYOUT = RunLayout("run-1")


def test_layout_is_the_documented_one() -> None:
    assert LAYOUT.run_toml == "runs/run-1/run.toml"
    assert LAYOUT.tasks == "runs/run-1/tasks/part-00000"
    assert LAYOUT.plan("teacher") == "runs/run-1/plan/teacher"
    assert LAYOUT.upload("a--b", "s1") == "runs/run-1/uploads/a--b/s1"
    assert LAYOUT.traces("a--b", "s1") == "runs/run-1/traces/a--b/s1"
    assert LAYOUT.verdicts("a--b", "s1") == "runs/run-1/verdicts/a--b/s1"
    assert LAYOUT.rewards("a--b", "s1") == "runs/run-1/rewards/a--b/s1"
    assert LAYOUT.difficulty == "runs/run-1/difficulty/part-00000"
    assert LAYOUT.quarantine("collect", "part-00000") == "runs/run-1/quarantine/collect/part-00000"
    assert LAYOUT.funnel == "runs/run-1/funnel.json"
    assert LAYOUT.report == "runs/run-1/report/index.html"


@pytest.mark.parametrize("run_id", ["", ".", "..", "-x", "a/b", "a b", "x" * 65, "a\n", "é"])
def test_bad_run_ids(run_id: str) -> None:
    with pytest.raises(BadPath, match="1 to 64"):
        RunLayout(run_id)


@pytest.mark.parametrize("bad", ["", "..", ".tmp-x", "a/b", "a\\b", "x\n", "a" * 201])
def test_bad_segments(bad: str) -> None:
    for call in (LAYOUT.traces, LAYOUT.upload, LAYOUT.quarantine):
        with pytest.raises(BadPath):
            call(bad, "s")
        with pytest.raises(BadPath):
            call("m", bad)
    with pytest.raises(BadPath, match="annotators"):
        LAYOUT.plan("other")


def test_any_row_can_be_set_aside(store: Store) -> None:
    row = {
        "text": "broken \ud83d",
        "number": float("nan"),
        "big": 2**70,
        "proof": b"\x00\xff",
        3: {"nested": [float("inf"), (1, 2)]},
        "thing": object,
    }
    assert quarantine_rows(store, LAYOUT, "collect", "s", [(row, "why", "file:1")]) == 1
    table = read_table(store, LAYOUT.quarantine("collect", "s"))
    assert table.schema.equals(contract.SCHEMA)
    back = json.loads(table.column("row")[0].as_py())
    assert back == {
        "text": "broken \ufffd",
        "number": "nan",
        "big": 2**70,
        "proof": {"base64": "AP8="},
        "3": {"nested": ["inf", [1, 2]]},
        "thing": "<class 'object'>",
    }


def test_a_stage_done_again_replaces_its_quarantine(store: Store) -> None:
    path = LAYOUT.quarantine("verify", "s")
    rows = [({"n": number}, "why", "traces") for number in range(3)]
    assert quarantine_rows(store, LAYOUT, "verify", "s", rows) == 3
    assert quarantine_rows(store, LAYOUT, "verify", "s", rows[:1]) == 1
    assert read_table(store, path).num_rows == 1
    assert quarantine_rows(store, LAYOUT, "verify", "s", []) == 0
    assert store.list("runs") == []


def test_counts_must_add_up() -> None:
    good = StageCount("verify", 10, 8, 2, {"a": 1, "b": 1})
    check(good)
    check(from_info("verify", {"counts": good.info()}))
    check(good + good)
    assert (good + good).reasons == {"a": 2, "b": 2}
    for bad, found in (
        (StageCount("verify", 10, 8, 1, {"a": 1}), "1 are unaccounted"),
        (StageCount("verify", 10, 11, -1), "negative"),
        (StageCount("verify", 10, 8, 2, {"a": 1}), "add up to 1"),
    ):
        with pytest.raises(CountMismatch, match=found):
            check(bad)
    with pytest.raises(CountMismatch, match="cannot be added"):
        _ = good + StageCount("collect", 0, 0, 0)


@pytest.mark.parametrize("info", [{}, {"counts": None}, {"counts": {"rows_in": 1}}])
def test_counts_that_are_not_there(info: dict[str, object]) -> None:
    with pytest.raises(CountMismatch, match="no usable counts"):
        from_info("verify", info)
