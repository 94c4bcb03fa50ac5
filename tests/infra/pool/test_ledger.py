import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from infra.pool.errors import BrokenLedger
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
    assert again.origins(0.0) == {"0", "1", "2"} and again.origins(time.time() + 7200) == set()
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


def test_writers_take_turns(tmp_path):
    store = Store(str(tmp_path))
    one, two, three = Ledger(store), Ledger(store), Ledger(store)
    for number in range(3):
        one.append(work(number))
    two.append(Slash(node_id=NODE, reason="it lied"))
    one.append(work(3))
    with ThreadPoolExecutor(3) as threads:
        for writer, first in ((one, 10), (two, 30), (three, 50)):
            for number in range(20):
                threads.submit(writer.append, work(first + number))
    assert verify(store).faults == []
    shards = [e.record.shard_id for e in entries(store) if e.record.kind == "work"]
    assert sorted(shards) == sorted(f"s{n}" for n in [*range(4), *range(10, 70)])


def test_who_finds_another_chain_does_not_append(tmp_path):
    mine, other = Store(str(tmp_path / "a")), Store(str(tmp_path / "b"))
    writer, foreign = Ledger(mine), Ledger(other)
    writer.append(work(0))
    foreign.append(work(5))
    foreign.append(work(6))
    name = "ledger/000000000001.json"
    mine.write_bytes(name, other.read_bytes(name))
    with pytest.raises(BrokenLedger, match="one of the two was changed"):
        writer.append(work(1))
