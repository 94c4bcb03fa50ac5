"""Records on their way into the ledger, which others write too."""

import sqlite3
import time

import pytest

from infra.pool.ledger import Ledger, Slash, entries, verify
from infra.pool.service.loops import origin_of
from infra.storage import Store

NODE = "ab" * 32


@pytest.fixture
def stopped(service):
    """The service's ledger and database while it does not run."""
    service.kill()
    yield Ledger(Store(str(service.root))), service.directory / "db" / "pool.sqlite"


def waiting(database) -> int:
    with sqlite3.connect(database) as db:
        return int(db.execute("SELECT count(*) FROM pool_records").fetchone()[0])


def test_what_was_written_before_a_kill_is_not_written_again(service, stopped):
    ledger, database = stopped
    rows = []
    for number in range(2):
        record = Slash(node_id=NODE, reason=f"waits {number}")
        rows.append((time.time_ns() + number, record.model_dump_json()))
    with sqlite3.connect(database) as db:
        db.executemany("INSERT INTO pool_records (number, text) VALUES (?, ?)", rows)
    # The first one had come to the ledger when the service was killed; then somebody else wrote.
    ledger.append(Slash(node_id=NODE, reason="waits 0"), origin=origin_of(*rows[0]))
    ledger.append(Slash(node_id=NODE, reason="another run"))
    service.start()
    deadline = time.monotonic() + 60
    while waiting(database) and time.monotonic() < deadline:
        time.sleep(0.05)
    store = Store(str(service.root))
    reasons = [e.record.reason for e in entries(store) if e.record.kind == "slash"]
    assert reasons.count("waits 0") == 1 and reasons[-3:] == ["waits 0", "another run", "waits 1"]
    assert verify(store).faults == []


def test_an_ejection_is_recorded_and_is_no_slash(service):
    node = service.node()
    node.beat()
    service.ask("POST", f"/nodes/{node.id}/eject", {"reason": "it is broken"})
    store, deadline = Store(str(service.root)), time.monotonic() + 30
    while time.monotonic() < deadline:
        found = [e.record for e in entries(store) if getattr(e.record, "node_id", "") == node.id]
        if found:
            break
        time.sleep(0.1)
    assert [(record.kind, record.reason) for record in found] == [("ejection", "it is broken")]
