import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tasks.validate.errors import OtherRequest, QueueTaken
from tasks.validate.service_queue import MAX_ATTEMPTS, WorkQueue
from toploc.record import Record


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "queue.sqlite"


def test_requests_are_taken_once_in_order_and_survive_a_restart(path):
    queue = WorkQueue(path)
    for name in ("a", "b", "c"):
        queue.trigger(name, {"n": name})
        queue.trigger(name, {"n": name})
    assert [queue.take(0).name for _ in range(2)] == ["a", "b"]
    queue.finish(queue.find("a"), {"status": "accept"})
    queue.close()

    again = WorkQueue(path)
    assert again.find("a").result == {"status": "accept"}
    # b was running when the process ended: it goes again, and that was an attempt.
    assert [(work.name, work.attempts) for work in (again.take(0), again.take(0))] == [
        ("b", 2),
        ("c", 1),
    ]
    assert again.take(0.05) is None
    assert again.counts() == {"accept": 1, "running": 2}


def test_what_kills_the_process_again_and_again_is_given_up_until_it_is_asked_for(path):
    queue = WorkQueue(path)
    for name in ("poison", "next"):
        queue.trigger(name, {})
    for _ in range(MAX_ATTEMPTS):
        assert queue.take(0).name == "poison"
        queue.close()
        queue = WorkQueue(path)
    given_up = queue.find("poison")
    assert (given_up.state, given_up.result["status"]) == ("done", "crashed")
    assert "killed" in given_up.result["reason"]
    assert queue.take(0).name == "next" and queue.take(0) is None
    queue.trigger("poison", {})
    assert queue.take(0).attempts == 1


def test_one_process_holds_a_queue(path):
    queue = WorkQueue(path)
    with pytest.raises(QueueTaken, match="in use"):
        WorkQueue(path)
    queue.close()
    WorkQueue(path).close()


def test_a_crash_is_tried_again_a_few_times_and_then_when_it_is_asked_for(path):
    queue = WorkQueue(path)
    queue.trigger("a", {})
    for attempt in range(1, MAX_ATTEMPTS + 1):
        work = queue.take(0)
        assert work.attempts == attempt
        queue.finish(work, {"status": "crashed"})
    assert queue.take(0) is None and queue.find("a").state == "done"
    queue.trigger("a", {})
    assert queue.take(0).attempts == 1


def test_other_values_under_a_known_name_are_refused_and_change_nothing(path):
    queue = WorkQueue(path)
    queue.trigger("a", {"sha": "1"})
    with pytest.raises(OtherRequest, match="'sha': '1'"):
        queue.trigger("a", {"sha": "2"})
    assert queue.find("a").request == {"sha": "1"}


def test_what_waits_for_somebody_comes_back_later_and_that_is_no_attempt(path):
    queue = WorkQueue(path)
    queue.trigger("a", {})
    queue.postpone(queue.take(0), time.time() + 3600, {"challenge": []})
    assert queue.take(0) is None and queue.find("a").result == {"challenge": []}
    queue.postpone(queue.find("a"), time.time() - 1, {})
    assert queue.take(0).name == "a"


def test_closing_lets_go_who_waits_and_drops_what_comes_late(path):
    queue = WorkQueue(path)
    queue.trigger("a", {})
    running = queue.take(0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(queue.take, 3600)
        queue.close()
        assert waiting.result(60) is None
    queue.finish(running, {"status": "accept"})
    again = WorkQueue(path)
    assert again.find("a").state == "waiting" and again.take(0).attempts == 2


def test_a_trace_counts_once_in_the_record_of_its_node(tmp_path):
    path = tmp_path / "queue.sqlite"
    queue = WorkQueue(path)
    assert queue.record("n", {"a": 0.0, "b": 1e-4}) == Record(2, 1, 1e-4)
    # The same file under another name, and one good file again and again.
    assert queue.record("n", {"a": 0.0, "b": 1e-4}) == Record(2, 1, 1e-4)
    assert queue.record("n", {"b": 0.0}) == Record(2, 1, 1e-4)
    # An honest version first does not cover for another one later.
    assert queue.record("n", {"a": 1e-4}) == Record(2, 2, 1e-4)
    assert queue.record("another", {"b": 1e-4}) == Record(1, 1, 1e-4)
    queue.close()
    queue = WorkQueue(path)
    assert queue.record("n", {"c": 1e-3}) == Record(3, 3, 1e-3)
    queue.close()
