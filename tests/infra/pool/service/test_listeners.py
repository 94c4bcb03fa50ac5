"""Transitions as webhooks and as Prefect events, against a real HTTP receiver."""

import asyncio
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from infra.pool.core.events import GroupCreated, GroupDestroyed, NodeChanged, TaskStopped
from infra.pool.service.listeners import Listeners
from infra.pool.service.settings import Webhook

NODE = "ab" * 32


@pytest.fixture
def receiver():
    """(URL, what was posted as (path, authorization, body), statuses to answer with first)."""
    posted: list[tuple[str, str, object]] = []
    statuses: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            status = statuses.pop(0) if statuses else 200
            if status == 200:
                found = self.headers.get("authorization", "")
                posted.append((self.path, found, json.loads(body)))
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", posted, statuses
    server.shutdown()
    server.server_close()


def deliver(listeners, posted, count):
    async def run():
        running = asyncio.create_task(listeners.run())
        for _ in range(600):
            if len(posted) >= count or running.done():
                break
            await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


def test_webhooks(receiver, monkeypatch):
    url, posted, statuses = receiver
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    statuses += [500, 503]
    listeners = Listeners([Webhook(url=f"{url}/hook", bearer_token="s3cret")])
    listeners.tell(NodeChanged(NODE, "Healthy", "Unhealthy", "silent"), "10.0.0.1", 8091)
    listeners.tell(GroupCreated("0a", "2x24GB", "task", (NODE,)), "", 0)
    listeners.tell(GroupDestroyed("0a", "2x24GB", "task", (NODE,), "it restarted"), "", 0)
    deliver(listeners, posted, 3)
    assert [(path, auth) for path, auth, _ in posted] == [("/hook", "Bearer s3cret")] * 3
    events = {body["event"]: body["data"] for _, _, body in posted}
    assert events["node.status_changed"] == {
        "node_address": NODE,
        "ip_address": "10.0.0.1",
        "port": 8091,
        "old_status": "Healthy",
        "new_status": "Unhealthy",
        "reason": "silent",
    }
    assert events["group.created"]["configuration_name"] == "2x24GB"
    assert events["group.destroyed"]["nodes"] == [NODE]
    assert all(isinstance(body["timestamp"], int) for _, _, body in posted)


def test_a_task_is_heard_of_from_its_start_to_its_end(receiver, another):
    url, posted, _ = receiver
    service = another({"webhooks": [{"url": url}]})
    node = service.node()
    task = service.task("words", shards=1)
    group = node.group()["group_id"]
    service.ask("DELETE", f"/tasks/{task}")
    wanted = ["task.created", "group.created", "group.ready", "task.deleted", "group.destroyed"]
    deadline = time.monotonic() + 30
    while not {body["event"] for _, _, body in posted} >= set(wanted):
        assert time.monotonic() < deadline, posted
        time.sleep(0.05)
    told = [body for _, _, body in posted if not body["event"].startswith("node.")]
    assert sorted(body["event"] for body in told) == sorted(wanted)
    assert told[0]["data"] == {"task_id": task, "name": "words", "priority": 0}
    assert {b["data"].get("group_id", group) for b in told} == {group}


@pytest.fixture
def event(receiver, monkeypatch):
    """What Prefect's API gets for a new group."""
    url, posted, _ = receiver
    monkeypatch.setenv("PREFECT_API_URL", f"{url}/api")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "user:word")
    listeners = Listeners([])
    listeners.tell(GroupCreated("0a", "2x24GB", "task", (NODE,)), "", 0)
    deliver(listeners, posted, 1)
    ((path, auth, (event,)),) = posted
    assert path == "/api/events" and auth.startswith("Basic ")
    return event


def test_prefect_events(event):
    assert event["event"] == "nodepool.group.created"
    assert event["resource"]["prefect.resource.id"] == "nodepool.group.0a"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_prefect_server_has_the_events(monkeypatch):
    from prefect.settings import get_current_settings
    from prefect.testing.utilities import prefect_test_harness

    wanted = {"filter": {"event": {"prefix": ["nodepool."]}}}
    with prefect_test_harness(server_startup_timeout=300):
        url = str(get_current_settings().api.url)
        monkeypatch.setenv("PREFECT_API_URL", url)
        listeners = Listeners([])
        listeners.tell(GroupCreated("0a", "2x24GB", "task", (NODE,)), "", 0)
        listeners.tell(TaskStopped("task", "config: no such model"), "", 0)
        listeners.tell(GroupDestroyed("0a", "2x24GB", "task", (NODE,), "it was stopped"), "", 0)
        found: list[dict] = []

        async def run():
            running = asyncio.create_task(listeners.run())
            async with httpx.AsyncClient(timeout=60) as client:
                for _ in range(300):
                    answer = await client.post(f"{url}/events/filter", json=wanted)
                    found[:] = answer.raise_for_status().json()["events"]
                    if len(found) == 3:
                        break
                    await asyncio.sleep(0.5)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        asyncio.run(run())
    events = {event["event"]: event for event in found}
    assert set(events) == {
        "nodepool.group.created", "nodepool.task.stopped", "nodepool.group.destroyed"
    }  # fmt: skip
    assert events["nodepool.group.created"]["payload"]["nodes"] == [NODE]
    stopped = events["nodepool.task.stopped"]
    assert stopped["resource"]["prefect.resource.id"] == "nodepool.task.task"


def test_who_refuses_is_not_asked_again(receiver, monkeypatch):
    url, posted, statuses = receiver
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    statuses += [404]
    listeners = Listeners([Webhook(url=url)])
    for group in ("0a", "0b"):
        listeners.tell(GroupCreated(group, "any", "task", (NODE,)), "", 0)
    deliver(listeners, posted, 1)
    assert [body["data"]["group_id"] for _, _, body in posted] == ["0b"]
