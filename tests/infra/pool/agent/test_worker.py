"""The process that works on shards, and what it may say."""

import os
import sys
import time

import pytest

from infra.pool.agent.errors import WorkerDied
from infra.pool.agent.shards import _checked
from infra.pool.agent.worker import MAX_LINE, Worker, files_of
from infra.pool.wire import MAX_UPLOAD_BYTES

PROGRAM = """
import json, sys, subprocess, time
print(json.dumps({"node_id": "me"}), flush=True)
print("words on stderr", file=sys.stderr, flush=True)
child = subprocess.Popen(["sleep", "600"])
for line in sys.stdin:
    asked = json.loads(line)
    for said in asked["say"]:
        print(json.dumps(said) if not isinstance(said, str) else said, flush=True)
    if asked.get("end"):
        sys.exit(3)
"""


@pytest.fixture
def worker():
    made = Worker([sys.executable, "-S", "-c", PROGRAM], os.environ)
    yield made
    made.stop(0)
    assert not made.alive


def ask(worker, *said, seen=None, **more):
    return worker.ask({"say": said} | more, (seen if seen is not None else []).append)


def test_it_answers_with_progress_on_the_way(worker):
    assert worker.meet() == "me"
    seen: list[float] = []
    answer = ask(
        worker, {"progress": 0.25}, {"progress": 1}, {"output": {}, "seconds": 1}, seen=seen
    )
    assert answer == {"output": {}, "seconds": 1} and seen == [0.25, 1.0]
    assert worker.last_words() == "words on stderr"


@pytest.mark.parametrize(
    "said",
    ["not json", "[1]", '{"progress": null}', '{"progress": "x"}', "[" * 100_000, "x" * MAX_LINE],
    ids=["text", "list", "null", "word", "deep", "long"],
)
def test_what_is_no_answer_counts_as_its_death(worker, said):
    worker.meet()
    with pytest.raises(WorkerDied, match=r"it said .*words on stderr"):
        ask(worker, said)


def test_its_end_is_seen_with_its_last_words(worker):
    worker.meet()
    with pytest.raises(WorkerDied, match=r"it ended\. Its last words: words on stderr"):
        ask(worker, end=True)


def test_stop_ends_what_it_started_too(worker):
    worker.meet()
    group = os.getpgid(worker._process.pid)
    worker.stop(0)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("its child lives on")


def test_only_files_of_its_own_directory_are_taken(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").touch()
    (tmp_path / "secret").touch()
    (tmp_path / "out" / "link").symlink_to(tmp_path / "secret")
    assert [p.name for p in files_of({"files": ["a"]}, tmp_path / "out")] == ["a"]
    assert files_of({}, tmp_path / "out") == []
    for name in ("../secret", "link", "none", ".", str(tmp_path / "secret")):
        with pytest.raises(WorkerDied, match="not one in"):
            files_of({"files": [name]}, tmp_path / "out")
    with pytest.raises(WorkerDied, match="not a list of names"):
        files_of({"files": "a"}, tmp_path / "out")
    with (tmp_path / "out" / "big").open("wb") as big:
        big.truncate(MAX_UPLOAD_BYTES + 1)
    with pytest.raises(WorkerDied, match="allowed are"):
        files_of({"files": ["big"]}, tmp_path / "out")


@pytest.mark.parametrize("answer", [
    {"output": {}, "seconds": float("nan")}, {"output": {}, "seconds": 10**400},
    {"output": {"a": float("inf")}, "seconds": 1}, {"output": [], "seconds": 1},
])  # fmt: skip
def test_an_answer_that_cannot_be_handed_in_is_its_fault(tmp_path, answer):
    """The thread that works on shards would end, and its node keep leases for nothing."""
    with pytest.raises(WorkerDied, match="it answered"):
        _checked(answer, tmp_path)
