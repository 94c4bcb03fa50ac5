import json

import pytest

from infra.pool.errors import BrokenLedger, LedgerTaken
from infra.pool.ledger import START, Ledger, Slash, Verdict, Work, entries, verify
from infra.storage import Store

NODE = "ab" * 32


def work(number: int) -> Work:
    return Work(task_id="t", shard_id=f"s{number}", nodes=(NODE,), files={"uploads/x": "0" * 64})


def test_chain_holds_over_reopening(tmp_path):
    store = Store(str(tmp_path))
    ledger = Ledger(store)
    for number in range(3):
        ledger.append(work(number), origin=str(number))
    again = Ledger(store)
    again.append(work(2), origin="2")
    again.append(Verdict(task_id="t", shard_id="s2", nodes=(NODE,), accepted=True), origin="3")
    assert [entry.seq for entry in entries(store)] == [0, 1, 2, 3]
    audit = verify(store)
    assert (audit.entries, audit.faults) == (4, [])
    assert (audit.kinds, audit.head) == ({"verdict": 1, "work": 3}, again.head[1])


def test_a_put_that_was_reported_as_failed_counts_once(tmp_path):
    store = Store(str(tmp_path))
    one, two = Ledger(store), Ledger(store)
    one.append(work(0), origin="7", at=1.0)
    two.append(work(0), origin="7", at=2.0)
    two.append(work(1), origin="8", at=3.0)
    assert [(entry.seq, entry.origin, entry.time) for entry in entries(store)] == [
        (0, "7", 1.0),
        (1, "8", 3.0),
    ]


def test_an_empty_ledger_is_whole(tmp_path):
    assert verify(Store(str(tmp_path))).head == START


@pytest.mark.parametrize("change", ["record", "removed", "swapped", "foreign", "end"])
def test_any_change_shows(tmp_path, change):
    store = Store(str(tmp_path))
    ledger = Ledger(store)
    for number in range(4):
        ledger.append(work(number))
    head = ledger.head[1]
    files = sorted((tmp_path / "ledger").iterdir())
    if change == "record":
        entry = json.loads(files[1].read_text())
        entry["record"]["shard_id"] = "other"
        files[1].write_text(json.dumps(entry))
    elif change == "removed":
        files[1].unlink()
    elif change == "swapped":
        one, two = files[1].read_text(), files[2].read_text()
        files[1].write_text(two)
        files[2].write_text(one)
    elif change == "foreign":
        (tmp_path / "ledger" / "note.txt").write_text("hello")
    else:
        files[3].unlink()
        assert verify(store).faults == []
    assert verify(store, head).faults
    if change in ("removed", "foreign"):
        with pytest.raises(BrokenLedger):
            Ledger(store)


def test_a_second_writer_is_refused(tmp_path):
    store = Store(str(tmp_path))
    one, two = Ledger(store), Ledger(store)
    one.append(work(0))
    with pytest.raises(LedgerTaken):
        two.append(Slash(node_id=NODE, reason="it lied"))
    one.append(work(1))
    assert verify(store).faults == []
