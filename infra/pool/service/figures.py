"""Figures for Prometheus under the original's names, and the JSON of GET /metrics."""

from collections import Counter as Count
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Depends, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from infra.pool import wire
from infra.pool.service.errors import NotThere
from infra.pool.service.gate import Gate
from infra.pool.service.pool import Pool

MANUAL = "manual"
"""What the operator posts is kept under this name of a node and of a task."""
_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Value(wire.Said):
    """Body of POST /metrics."""

    label: str
    value: wire.Finite


class Target(wire.Said):
    """Body of DELETE /metrics/{task_id}."""

    label: str
    address: str = MANUAL


class Figures(Collector):
    """Reads the pool when it is asked."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.registry = CollectorRegistry()
        self.tick_seconds = Histogram(
            "orchestrator_status_update_execution_time_seconds",
            "Time of one tick of the pool's core",
            ["pool_id"],
            buckets=_BUCKETS,
            registry=self.registry,
        ).labels(pool.settings.pool_id)
        self.registry.register(self)

    def describe(self) -> list[Metric]:
        """Nothing before it is collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All figures now."""
        pool, pool_id = self._pool, self._pool.settings.pool_id
        nodes, state = pool.state.nodes, pool.state
        group_of = {n: state.groups.get(node.group_id) for n, node in nodes.items()}
        name_of = {task_id: task.name for task_id, task in pool.tasks.items()}

        gauges = _gauge(
            "compute_gauges",
            "Figures that nodes report",
            "node_address task_id task_name label pool_id group_id group_config_name",
        )
        for node_id, found in pool.metrics.items():
            group = group_of.get(node_id)
            where = (group.group_id, group.topology) if group else ("", "")
            for (task_id, label), value in found.items():
                name = name_of.get(task_id, "")
                gauges.add_metric([node_id, task_id, name, label, pool_id, *where], value)
        yield gauges

        info = _gauge("task_info", "Tasks", "task_id task_name pool_id metadata")
        per_task = _gauge(
            "orchestrator_nodes_per_task", "Nodes of a task", "task_id task_name pool_id"
        )
        for task_id, task in pool.tasks.items():
            labels = (task.metadata.labels if task.metadata else None) or {}
            text = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
            info.add_metric([task_id, task.name, pool_id, text], 1)
            grouped = sum(state.tasks[task_id].grouped.values())
            per_task.add_metric([task_id, task.name, pool_id], grouped)
        yield info
        yield per_task

        yield _count(
            "orchestrator_nodes_total",
            "Nodes by state",
            "status",
            Count(node.state.lower() for node in nodes.values()),
            pool_id,
        )
        yield _count(
            "orchestrator_groups_total",
            "Groups by topology",
            "configuration_name",
            Count(group.topology for group in state.groups.values()),
            pool_id,
        )
        tasks = _gauge("orchestrator_tasks_total", "Tasks", "pool_id")
        tasks.add_metric([pool_id], len(pool.tasks))
        yield tasks
        yield _count(
            "orchestrator_shards_total",
            "Shards by state",
            "state",
            Count(shard.state.value for shard in state.shards.values()),
            pool_id,
        )

        beats = CounterMetricFamily(
            "orchestrator_heartbeat_requests",
            "Heartbeats taken",
            labels=["node_address", "pool_id"],
        )
        for node_id, count in pool.beats.items():
            beats.add_metric([node_id, pool_id], count)
        yield beats
        uploads = CounterMetricFamily(
            "orchestrator_file_upload_requests",
            "Uploads granted",
            labels=["task_id", "task_name", "node_address", "pool_id"],
        )
        for (task_id, node_id), count in pool.upload_requests.items():
            uploads.add_metric([task_id, name_of.get(task_id, ""), node_id, pool_id], count)
        yield uploads

        states = _gauge(
            "orchestrator_task_state",
            "What nodes say of their task",
            "node_address task_id task_state pool_id",
        )
        for node_id, said in pool.reports.items():
            if said.task_id and said.task_state:
                states.add_metric([node_id, said.task_id, said.task_state, pool_id], 1)
        yield states


class _Found(CollectorRegistry):
    """Figures that were read before."""

    def __init__(self, metrics: list[Metric]) -> None:
        super().__init__()
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Them."""
        yield from self._metrics


def metric_routes(pool: Pool, gate: Gate, figures: Figures) -> APIRouter:
    """GET and POST of figures."""
    router = APIRouter(dependencies=[Depends(gate.admin)], tags=["metrics"])

    @router.get("/metrics")
    async def by_task() -> dict[str, Any]:
        """Figures by task and label, summed over nodes."""
        found: dict[str, dict[str, float]] = {}
        for figures_ in pool.metrics.values():
            for (task_id, label), value in figures_.items():
                labels = found.setdefault(task_id, {})
                labels[label] = labels.get(label, 0.0) + value
        return {"success": True, "metrics": found}

    @router.get("/metrics/all")
    async def by_node() -> dict[str, Any]:
        """Figures by node, task and label."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        for node_id, figures_ in pool.metrics.items():
            for (task_id, label), value in figures_.items():
                found.setdefault(node_id, {}).setdefault(task_id, {})[label] = value
        return {"success": True, "metrics": found}

    @router.get("/metrics/prometheus")
    async def prometheus() -> Response:
        """The text format of Prometheus."""
        # The pool is read here, at once; the text of thousands of nodes is made beside its loop.
        found = _Found(list(figures.registry.collect()))
        text = await run_in_threadpool(generate_latest, found)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @router.post("/metrics")
    async def post(body: Value) -> wire.Done:
        """A figure of the operator's own."""
        pool.metrics.setdefault(MANUAL, {})[MANUAL, body.label.replace(":", "")] = body.value
        return wire.Done()

    @router.delete("/metrics/{task_id}")
    async def delete(task_id: str, body: Target) -> wire.Done:
        """Forget a figure."""
        if pool.metrics.get(body.address, {}).pop((task_id, body.label), None) is None:
            raise NotThere(f"node {body.address[:80]!r} has no {body.label[:80]!r} of this task")
        return wire.Done()

    return router


def _gauge(name: str, text: str, labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels.split())


def _count(
    name: str, text: str, label: str, counts: "Count[str]", pool_id: str
) -> GaugeMetricFamily:
    family = _gauge(name, text, f"{label} pool_id")
    for key, count in sorted(counts.items()):
        family.add_metric([key, pool_id], count)
    return family
