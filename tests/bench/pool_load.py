"""Heartbeats of thousands of agents against one service process on loopback.

Each agent has its own key and connection, signs each heartbeat, and sends one every `--every`
seconds, at its own time within the interval; half of them are in groups with a lease and report
progress, all report six system metrics. Latency counts from when a heartbeat was due, so that a
service that falls behind cannot hide it. A heartbeat is lost if it was not answered with 200, or if
the service did not count it; a node is lost if its state changed during the load.

    python -m tests.bench.pool_load [--agents 5000] [--every 10] [--seconds 600]

There is no peer: the original's service is not to be had here. One JSON line per figure.
"""

import argparse
import asyncio
import gc
import json
import math
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

from infra.pool.signature import sign_request
from toploc.signing import SigningKey

ADMIN = {"authorization": "Bearer " + "k" * 40}
JOIN_AT_ONCE = 16


class Agent:
    """A node: a key, a connection, and what it was told."""

    def __init__(self, port: int) -> None:
        self.key = SigningKey.generate()
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.group: dict[str, Any] = {}
        self.shard_id = ""
        self.progress = 0.0

    async def request(self, epoch: str, method: str, path: str, body: dict[str, Any]) -> Any:
        """The parsed answer of a signed request; raises where it is not 200."""
        data = json.dumps(body).encode()
        signed = sign_request(self.key, epoch, method, path, "", data)
        head = "".join(f"{name}: {value}\r\n" for name, value in signed.items())
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        assert self._reader is not None
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nhost: pool\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\n{head}\r\n".encode()
            + data
        )
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line[15:])
            for line in answer.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        content = await self._reader.readexactly(length)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(f"{answer[9:12].decode()}: {content[:200].decode()}")
        return json.loads(content)

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def join(self, epoch: str, invite: str) -> None:
        """Register."""
        body = {
            "id": self.key.node_id,
            "invite": invite,
            "compute_specs": {"gpu": {"count": 1, "model": "RTX 4090", "memory_mb": 24000}},
            "worker_p2p_id": self.key.node_id[:40],
        }
        await self.request(epoch, "PUT", "/nodes", body)

    async def beat(self, epoch: str) -> None:
        """One heartbeat, and what follows from its answer."""
        task = self.group.get("task_id", "")
        body = {
            "address": self.key.node_id,
            "version": "0.1.0",
            "metrics": [
                {"key": {"task_id": task, "label": f"system/{name}"}, "value": random.random()}
                for name in ("cpu_percent", "memory_percent", "memory_usage", "gpu_0_memory_used",
                             "gpu_0_memory_total", "gpu_0_utilization")
            ],
        }  # fmt: skip
        if self.group:
            self.progress = min(self.progress + 0.001, 1.0)
            body |= {
                "task_id": task,
                "task_state": "RUNNING",
                "group_id": self.group["group_id"],
                "group_version": self.group["version"],
                "shard_id": self.shard_id,
                "progress": self.progress,
            }
        data = (await self.request(epoch, "POST", "/heartbeat", body))["data"]
        self.group, self.shard_id = data["group"] or {}, data["shard_id"]


class Load:
    """All agents, and what came of their heartbeats."""

    def __init__(self, agents: list[Agent], epoch: str, every: float) -> None:
        self.agents = agents
        self.seconds: list[float] = []
        self.errors: list[str] = []
        self.sent = 0
        self._epoch = epoch
        self._every = every

    async def join(self, invite: str) -> None:
        """Register all."""
        slots = asyncio.Semaphore(JOIN_AT_ONCE)

        async def one(agent: Agent) -> None:
            async with slots:
                await agent.join(self._epoch, invite)

        await asyncio.gather(*map(one, self.agents))

    async def run(self, seconds: float, measured: bool) -> None:
        """Heartbeats for a time."""
        start = time.perf_counter() + 0.5

        async def one(number: int, agent: Agent) -> None:
            due = start + self._every * number / len(self.agents)
            while due < start + seconds:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                self.sent += measured
                try:
                    await agent.beat(self._epoch)
                except (ConnectionError, asyncio.IncompleteReadError, OSError) as error:
                    agent.close()
                    self.errors.append(f"{type(error).__name__}: {error}"[:200])
                else:
                    if measured:
                        self.seconds.append(time.perf_counter() - due)
                due += self._every

        await asyncio.gather(*(one(number, agent) for number, agent in enumerate(self.agents)))


def start(directory: str, port: int) -> subprocess.Popen[bytes]:
    """The service with its default limits; only joining is not held up."""
    config = {
        "root": f"{directory}/root",
        "database": f"{directory}/pool.sqlite",
        "port": port,
        "settings": {"challenge": False, "strangers_per_minute": 1e9},
    }
    env = dict(os.environ) | {
        "XDG_CONFIG_HOME": f"{directory}/config",
        "TRACEMILL_POOL_ADMIN_KEY": "k" * 40,
    }
    command = [sys.executable, "-m", "infra.pool.service", json.dumps(config)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=env)
    for _ in range(1200):
        try:
            httpx.get(f"http://127.0.0.1:{port}/health")
            return process
        except httpx.TransportError:
            time.sleep(0.1)
    raise SystemExit("the service did not start")


def line(metric: str, ours: float, unit: str) -> None:
    figures = {"bench": "pool_load", "metric": metric, "ours": round(ours, 4), "peer": None,
               "peer_name": None, "ratio": None, "unit": unit}  # fmt: skip
    print(json.dumps(figures), flush=True)


def counted(text: str) -> int:
    """Heartbeats that the service counted."""
    name = "orchestrator_heartbeat_requests_total{"
    return sum(int(float(row.split()[-1])) for row in text.splitlines() if row.startswith(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=5000)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=600.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "root").mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = start(directory, port)
        try:
            measure(arguments, port, psutil.Process(process.pid))
        finally:
            process.kill()
            process.wait()


def measure(arguments: argparse.Namespace, port: int, process: psutil.Process) -> None:
    admin = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=ADMIN, timeout=120)
    epoch = admin.get("/epoch").json()["epoch"]
    invite = admin.post("/invites", json={"uses": arguments.agents}).json()["invite"]
    load = Load([Agent(port) for _ in range(arguments.agents)], epoch, arguments.every)
    # Collections of the load's own garbage would count as latency.
    gc.freeze()

    async def all_of_it() -> None:
        started = time.perf_counter()
        await load.join(invite)
        line("joins_per_s", arguments.agents / (time.perf_counter() - started), "nodes/s")
        await load.run(arguments.every, measured=False)
        task = {"name": "load", "image": "local/worker", "sharded": True}
        task_id = admin.post("/tasks", json=task).json()["task"]["id"]
        for first in range(0, arguments.agents // 2, 1000):
            shards = [{"shard_id": f"s{first + n}"} for n in range(1000)]
            shards = shards[: arguments.agents // 2 - first]
            admin.post(f"/tasks/{task_id}/shards", json={"shards": shards}).raise_for_status()
        # Groups are formed, and their members say that they are ready.
        await load.run(2 * arguments.every, measured=False)

    async def measured() -> None:
        await load.run(arguments.seconds, measured=True)

    with asyncio.Runner() as runner:
        runner.run(all_of_it())
        groups = admin.get("/groups").json()["groups"]
        leased = sum(bool(group["shard_id"]) for group in groups)
        load.errors.clear()
        before, since = counted(admin.get("/metrics/prometheus").text), time.time()
        spent, started = sum(process.cpu_times()[:2]), time.perf_counter()
        runner.run(measured())
        elapsed = time.perf_counter() - started
        spent = sum(process.cpu_times()[:2]) - spent
        after = counted(admin.get("/metrics/prometheus").text)
        nodes = admin.get("/nodes", params={"include_dead": True}).json()["nodes"]
    changed = [node for node in nodes if node["last_status_change"] > since]
    line("leases_held", leased, "groups")
    line("heartbeats_per_s", len(load.seconds) / elapsed, "1/s")
    for share in (0.5, 0.99, 0.999, 1.0):
        name = {0.5: "p50", 0.99: "p99", 0.999: "p999", 1.0: "max"}[share]
        ordered = sorted(load.seconds)
        value = ordered[max(0, math.ceil(share * len(ordered)) - 1)]
        line(f"heartbeat_{name}", value, "s")
    line("heartbeat_mean", statistics.fmean(load.seconds), "s")
    line("heartbeats_sent", load.sent, "heartbeats")
    line("heartbeat_errors", len(load.errors), "heartbeats")
    line("heartbeats_lost", load.sent - (after - before), "heartbeats")
    line("nodes_lost", len(changed), "nodes")
    line("service_cpu", spent / elapsed, "cores")
    line("service_memory", process.memory_info().rss / 2**20, "MiB")
    for error in sorted(set(load.errors))[:5]:
        print(error, file=sys.stderr)


if __name__ == "__main__":
    main()
