"""The agent's loop: one heartbeat after the other, each held by the pool until there is news.

What to do comes with the heartbeats alone and is the same until it changes, so a lost answer costs
nothing. Invariants: at most one task runs, in one place of one group; when the agent ends, however,
nothing that it started lives on (infra/reaper.py for kill -9). SIGTERM lets it finish its shard and
leave; the second one, or SIGHUP, ends it at once.
"""

import logging
import signal
import threading
import time
from pathlib import Path

from infra.pool.agent import machine
from infra.pool.agent.admission import join
from infra.pool.agent.config import AgentConfig, split_address
from infra.pool.agent.errors import NotAdmitted, WorkerDied
from infra.pool.agent.launch import Launch, Launcher
from infra.pool.agent.links import Links
from infra.pool.agent.peers import Listener, Peers
from infra.pool.agent.shards import Lease, Place, ShardRunner
from infra.pool.agent.standing import StandingRunner
from infra.pool.client import PoolClient
from infra.pool.errors import PoolError, PoolUnreachable, RequestRefused
from infra.pool.wire import (
    Assignment,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatData,
    Metric,
    Order,
    OrderAnswer,
    RegisterRequest,
)
from infra.reaper import AGENT, end_marked

log = logging.getLogger("tracemill.agent")

LOG_CHARS = 16_000
PAUSE = 1.0


class Agent:
    """One node of one pool."""

    def __init__(
        self,
        client: PoolClient,
        node_id: str,
        config: AgentConfig,
        launcher: Launcher,
        links: Links,
        work_dir: Path,
        mark: str,
        version: str,
    ):
        self._client, self._node_id, self._config = client, node_id, config
        self._launcher, self._links, self._work_dir = launcher, links, work_dir
        self._mark, self._version = mark, version
        self._runner: ShardRunner | StandingRunner | None = None
        self._assignment: Assignment | None = None
        self._launch: Launch | None = None
        """How the runner's process was started."""
        self._peers = Peers(node_id, links, self._report)
        self._data = HeartbeatData()
        self._etag = ""
        self._every = 10.0
        self._figures: list[Metric] | None = None
        """Of the machine, until a heartbeat takes them along."""
        self._leaving = self._joined = False
        self._idle_since = time.monotonic()

    def run(self) -> None:
        """Until the node has left, is excluded, or is idle for too long."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        threading.Thread(target=self._measure, daemon=True).start()
        listener = Listener(self._config.address, self._links) if self._config.address else None
        try:
            self._join()
            while not self._finished():
                self._turn()
        finally:
            if listener is not None:
                listener.close()
            self._stop_runner()
            self._peers.close()
            end_marked(AGENT, self._mark)
            if self._joined:
                self._say_gone()

    def _measure(self) -> None:
        # Not between heartbeats: asking the cards takes up to a second.
        while True:
            task = self._assignment
            self._figures = machine.metrics(task.id if task else "")
            time.sleep(self._every)

    def _on_signal(self, number: int, frame: object) -> None:
        if self._leaving or number == signal.SIGHUP:
            raise SystemExit(128 + number)
        self._leaving = True
        # A held heartbeat would keep the leave waiting.
        threading.Thread(target=self._leave, daemon=True).start()

    def _say_gone(self) -> None:
        try:
            self._client.call("POST", "/nodes/gone", patience=1.0)
        except PoolError as error:
            log.warning("%s", error)

    def _leave(self) -> None:
        try:
            self._client.call("POST", "/nodes/leave")
        except PoolError as error:
            log.warning("%s", error)

    def _join(self) -> None:
        config = self._config
        host, port = split_address(config.address)
        request = RegisterRequest(
            id=self._node_id,
            invite=config.invite,
            ip_address=host,
            port=port,
            location=config.location,
            compute_specs=machine.specs(self._work_dir),
            worker_p2p_id=config.p2p_id,
            models=list(config.models),
            version=self._version,
        )
        registration = join(self._client, request, self._launcher.canary)
        self._links.renew(registration.certificate, registration.ca)
        self._joined = True
        self._every, self._etag = registration.heartbeat_seconds, ""
        log.info("node %s is admitted", self._node_id)

    def _finished(self) -> bool:
        data = self._data
        if data.group is not None:
            self._idle_since = time.monotonic()
        elif self._leaving or data.leaving:
            return True
        idle = time.monotonic() - self._idle_since
        return 0 < self._config.idle_seconds < idle

    def _turn(self) -> None:
        """One heartbeat, and what follows from its answer."""
        try:
            answer = self._beat(self._every)
            self._etag, self._data = answer.etag, answer.data
            if answer.neighbours is not None:
                self._peers.candidates(answer.neighbours)
            for order in answer.data.orders:
                self._obey(order)
            if answer.data.register_again:
                self._stop_runner()
                self._join()
            else:
                self._follow(answer.data)
        except PoolUnreachable as error:
            log.warning("%s", error)
            if self._leaving:
                self._data = HeartbeatData()
        except RequestRefused as error:
            self._refused(error)

    def _refused(self, error: RequestRefused) -> None:
        if error.code == "UNKNOWN_NODE":
            self._stop_runner()
            self._join()
        elif error.code == "NODE_EXCLUDED":
            raise NotAdmitted(str(error)) from error
        elif error.code != "OUT_OF_ORDER":  # a report of ours was faster
            log.warning("%s", error)
            time.sleep(PAUSE)

    def _beat(self, wait: float) -> HeartbeatAnswer:
        runner = self._runner
        body = Heartbeat(
            address=self._node_id,
            version=self._version,
            timestamp=int(time.time()),
            p2p_id=self._config.p2p_id,
            wait_seconds=wait,
            seen=self._etag,
            rtt_ms=self._peers.rtt_ms(),
            lost_peers=self._peers.lost(),
        )
        figures, self._figures = self._figures, None
        if figures is not None:
            body.metrics = figures + (
                runner.metrics() if isinstance(runner, StandingRunner) else []
            )
        if runner is not None:
            body.task_id = runner.place.task_id
            standing_by = not runner.place.group_id
            body.standing_by = standing_by and runner.ready
            body.group_id = runner.place.group_id
            body.group_version = runner.place.version if runner.ready and not standing_by else -1
            if isinstance(runner, ShardRunner):
                body.shard_id, body.progress = runner.shard_id, runner.progress
                body.task_state = "RUNNING" if runner.ready else "PENDING"
            else:
                body.task_state, body.task_details = runner.state, runner.details()
        return self._client.call(
            "POST", "/heartbeat", body, HeartbeatAnswer, timeout=wait + 20.0, patience=self._every
        )

    def _report(self) -> None:
        """Tell the pool at once what changed here; the held heartbeat brings the answer."""
        try:
            self._beat(0.0)
        except (PoolUnreachable, RequestRefused) as error:
            log.warning("%s", error)

    def _follow(self, data: HeartbeatData) -> None:
        """Have the right runner for the group, and give it its lease."""
        place, task = self._place(data)
        runner = self._runner
        if isinstance(runner, ShardRunner) and runner.broken:
            raise WorkerDied(f"the worker does not start: {runner.broken}")
        if runner is not None and (place, task) != (runner.place, self._assignment):
            if (
                isinstance(runner, ShardRunner)
                and place is not None
                and task is not None
                and self._same(runner.place, place, task)
            ):
                self._settle(data, task)
                runner.move(place)
            else:
                self._stop_runner()
        if place is not None and task is not None and self._runner is None:
            self._settle(data, task)
            self._runner = self._start(place, task)
        if isinstance(self._runner, ShardRunner):
            lease = Lease(data.shard_id, data.leased_at) if data.shard_id else None
            self._runner.assign(lease)

    def _place(self, data: HeartbeatData) -> tuple[Place | None, Assignment | None]:
        """Where the node works, or stands by, and for which task."""
        group, standby = data.group, data.standby
        if group is not None and data.current_task is not None:
            task = data.current_task
            return Place(group.group_id, group.version, group.index, task.id), task
        if standby is not None and not self._leaving and self._launcher.knows(standby.task):
            return Place("", -1, standby.index, standby.task.id), standby.task
        return None, None

    def _same(self, before: Place, place: Place, task: Assignment) -> bool:
        """Whether the worker of another group, or of none, would be started just so for this place:
        the node stood by for it, or a member of its group was replaced."""
        same = (before.task_id, before.index) == (place.task_id, place.index)
        return same and self._launch == self._launcher.launch(task)

    def _settle(self, data: HeartbeatData, task: Assignment) -> None:
        self._assignment, self._launch = task, self._launcher.launch(task)
        self._peers.members(data.group.members if data.group else [])

    def _start(self, place: Place, task: Assignment) -> ShardRunner | StandingRunner:
        launch = self._launcher.launch(task)
        if task.sharded:
            return ShardRunner(self._client, place, launch, self._report)
        return StandingRunner(self._client, place, task, launch, self._report)

    def _stop_runner(self) -> None:
        runner, self._runner, self._assignment = self._runner, None, None
        self._launch = None
        self._peers.members([])
        if runner is not None:
            runner.close()

    def _obey(self, order: Order) -> None:
        text = ""
        if order.kind == "logs":
            text = self._runner.logs(LOG_CHARS) if self._runner is not None else ""
        else:
            # The next heartbeat starts it again.
            self._stop_runner()
        self._client.call("POST", f"/nodes/orders/{order.order_id}", OrderAnswer(text=text))
