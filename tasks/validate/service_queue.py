"""The validator's queue: one SQLite file, so that a restart and kill -9 lose nothing.

Invariants: a name has one request and one result; the same request again changes nothing, unless
the validator crashed on it; a trace counts once in the record of its node; work that was running
when the process died waits again, and counts as an attempt, so that a file that kills the validator
is given up; one process holds the queue.
"""

import fcntl
import json
import sqlite3
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.validate.errors import OtherRequest, QueueTaken
from toploc.record import Record

MAX_ATTEMPTS = 3

_SCHEMA = """
CREATE TABLE IF NOT EXISTS work (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    request TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'done')),
    attempts INTEGER NOT NULL DEFAULT 0,
    not_before REAL NOT NULL DEFAULT 0,
    result TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE IF NOT EXISTS record (
    node_id TEXT NOT NULL,
    trace TEXT NOT NULL,
    rate REAL NOT NULL,
    PRIMARY KEY (node_id, trace)
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Work:
    """One request and what is known of it."""

    name: str
    """`file:` or `group:` and the name of the upload."""
    request: dict[str, Any]
    state: str
    attempts: int
    result: dict[str, Any]


class WorkQueue:
    """Requests in the order in which they came; thread-safe."""

    def __init__(self, path: Path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_file = path.with_suffix(".lock").open("w")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise QueueTaken(path) from error
        self._changed = threading.Condition()
        self.closed = False
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_SCHEMA)
        killed = f"the validator was killed {MAX_ATTEMPTS} times while it worked on this"
        self._db.execute(
            "UPDATE work SET state = 'done', result = ? WHERE state = 'running' AND attempts >= ?",
            (json.dumps({"status": "crashed", "reason": killed}), MAX_ATTEMPTS),
        )
        self._db.execute("UPDATE work SET state = 'waiting' WHERE state = 'running'")

    def trigger(self, name: str, request: dict[str, Any]) -> None:
        """Queue a request. OtherRequest where the name has had another one."""
        with self._changed:
            known = self.find(name)
            if known is None:
                self._db.execute(
                    "INSERT INTO work (name, request, state) VALUES (?, ?, 'waiting')",
                    (name, json.dumps(request)),
                )
            elif known.request != request:
                raise OtherRequest(name, known.request)
            elif known.state == "done" and known.result.get("status") == "crashed":
                self._db.execute(
                    "UPDATE work SET state = 'waiting', attempts = 0, not_before = 0 "
                    "WHERE name = ?",
                    (name,),
                )
            self._changed.notify()

    def find(self, name: str) -> Work | None:
        """What is known of a name."""
        with self._changed:
            row = self._db.execute(
                "SELECT name, request, state, attempts, result FROM work WHERE name = ?", (name,)
            ).fetchone()
        return None if row is None else _work(row)

    def take(self, wait_seconds: float) -> Work | None:
        """The oldest request that may be worked on now, as running; None if none came in time.

        None at once when the queue is closed.
        """
        deadline = time.monotonic() + wait_seconds
        with self._changed:
            while self.closed or (row := self._next()) is None:
                left = deadline - time.monotonic()
                if self.closed or left <= 0:
                    return None
                self._changed.wait(min(left, 1.0))
            return _work(row)

    def _next(self) -> Any:
        # All rows are fetched: the change is committed only then.
        rows = self._db.execute(
            "UPDATE work SET state = 'running', attempts = attempts + 1 WHERE number = ("
            "SELECT number FROM work WHERE state = 'waiting' AND not_before <= ? "
            "ORDER BY number LIMIT 1) RETURNING name, request, state, attempts, result",
            (time.time(),),
        ).fetchall()
        return rows[0] if rows else None

    def finish(self, work: Work, result: dict[str, Any]) -> None:
        """Note a result; a crash is tried again, `MAX_ATTEMPTS` times in all."""
        again = result["status"] == "crashed" and work.attempts < MAX_ATTEMPTS
        self._update(work, "waiting" if again else "done", work.attempts, 0.0, result)

    def postpone(self, work: Work, until: float, result: dict[str, Any]) -> None:
        """Wait for somebody else until a time (seconds since 1970); that is no attempt."""
        self._update(work, "waiting", work.attempts - 1, until, result)

    def _update(
        self, work: Work, state: str, attempts: int, until: float, result: dict[str, Any]
    ) -> None:
        with self._changed:
            if self.closed:
                return  # the next process finds it running, and does it again
            self._db.execute(
                "UPDATE work SET state = ?, attempts = ?, not_before = ?, result = ? "
                "WHERE name = ?",
                (state, attempts, until, json.dumps(result), work.name),
            )
            self._changed.notify()

    def record(self, node_id: str, traces: Mapping[str, float]) -> Record:
        """The record of a node with these traces in it: the rate of the limits which refused one,
        0 for one that was accepted. A trace counts once, as refused if it ever was."""
        with self._changed:
            if self.closed:
                return Record()
            self._db.execute("BEGIN")
            self._db.executemany(
                "INSERT INTO record VALUES (?, ?, ?) "
                "ON CONFLICT DO UPDATE SET rate = max(rate, excluded.rate)",
                [(node_id, trace, rate) for trace, rate in traces.items()],
            )
            row = self._db.execute(
                "SELECT count(*), total(rate > 0), coalesce(max(rate), 0.0) FROM record "
                "WHERE node_id = ?",
                (node_id,),
            ).fetchone()
            self._db.execute("COMMIT")
        return Record(int(row[0]), int(row[1]), row[2])

    def counts(self) -> dict[str, int]:
        """Requests by state, and those done by status."""
        with self._changed:
            rows = self._db.execute(
                "SELECT CASE state WHEN 'done' THEN json_extract(result, '$.status') "
                "ELSE state END, count(*) FROM work GROUP BY 1"
            ).fetchall()
        return {str(name): int(count) for name, count in rows}

    def close(self) -> None:
        """Give the queue to another process; a thread that waits for work is let go."""
        with self._changed:
            self.closed = True
            self._db.close()
            self._lock_file.close()
            self._changed.notify_all()


def _work(row: Any) -> Work:
    name, request, state, attempts, result = row
    return Work(name, json.loads(request), state, attempts, json.loads(result))
