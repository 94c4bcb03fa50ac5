"""The pool in memory: the core's state, and what the service knows besides.

Invariants: it belongs to one event loop, which is its lock: nothing awaits between a look at the
state and the decision that follows from it; every change is in the journal when `decide` returns,
and whoever answers waits for the journal first. What is not stored (metrics, task states that
nodes report, who waits) is reported anew after a restart.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict

from infra.pool import wire
from infra.pool.core import codec
from infra.pool.core.decide import decide
from infra.pool.core.events import (
    Effect,
    Event,
    GroupCreated,
    GroupDestroyed,
    GroupReady,
    MemberReplaced,
    NodeChanged,
    ShardEnded,
    TaskCreated,
    TaskDeleted,
    TaskStopped,
)
from infra.pool.core.state import NodeState, PoolState
from infra.pool.ledger import Ejection, Record
from infra.pool.service.journal import Journal
from infra.pool.service.listeners import Listeners
from infra.pool.service.settings import ServiceSettings
from infra.pool.service.store import PoolStore

_SILENT = frozenset({NodeState.DEAD, NodeState.EJECTED, NodeState.BANNED})
_CORE_KINDS = frozenset({"node", "group", "task", "shard", "pool"})


class Card(BaseModel):
    """What a node said of itself when it registered, and how it was let in."""

    model_config = ConfigDict(extra="ignore")

    node_id: str
    ip_address: str
    port: int
    specs: wire.ComputeSpecs
    p2p_id: str = ""
    p2p_addresses: list[str] = []
    version: str = ""
    location: wire.Location | None = None
    invite_id: str = ""
    trusted: bool = False
    first_seen: float


class InviteRow(BaseModel):
    """An invite; its key is known by its hash."""

    invite_id: str
    expires_at: float
    uses_left: int
    label: str
    trusted: bool


class Report(BaseModel):
    """What a node last said of its task."""

    task_id: str | None = None
    task_state: str | None = None
    task_details: wire.TaskDetails | None = None
    version: str | None = None


class Pool:
    """One pool."""

    def __init__(self, store: PoolStore, settings: ServiceSettings, listeners: Listeners):
        self.store = store
        self.settings = settings
        self.listeners = listeners
        self.topologies = settings.named_topologies()
        self.state = PoolState(settings=settings.core_settings())
        self.journal = Journal(store, self._dump)
        self.cards: dict[str, Card] = {}
        self.tasks: dict[str, wire.TaskView] = {}
        self.invites: dict[str, InviteRow] = {}
        """By SHA-256 of the key."""
        self.metrics: dict[str, dict[tuple[str, str], float]] = {}
        """Node -> (task, label) -> value."""
        self.reports: dict[str, Report] = {}
        self.orders: dict[str, list[wire.Order]] = {}
        """What nodes are still to be told."""
        self.order_answers: dict[str, str] = {}
        self.beats: dict[str, int] = defaultdict(int)
        """Heartbeats of each node since the start."""
        self.upload_requests: dict[tuple[str, str], int] = defaultdict(int)
        self.heard: dict[str, float] = {}
        """When the owner of a task last asked for results, by the monotonic clock."""
        self._watched: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._ending = False
        self._last_result = 0
        self.last_record = 0
        """Number of the newest record."""
        # A step of the wall clock must not hold up what the core waits for.
        self._clock = time.time() - time.monotonic()

    async def open(self, epoch: str) -> None:
        """Read what is stored."""
        core: list[tuple[str, str, str]] = []
        for kind, key, text in await self.store.open(epoch):
            if kind in _CORE_KINDS:
                core.append((kind, key, text))
            elif kind == "card":
                self.cards[key] = Card.model_validate_json(text)
            elif kind == "spec":
                self.tasks[key] = wire.TaskView.model_validate_json(text)
            elif kind == "invite":
                self.invites[key] = InviteRow.model_validate_json(text)
        self.state = codec.load(core, self.state.settings, self._now())
        self._last_result = await self.store.last_result()
        waiting = [number for number, _ in await self.store.records()]
        self.last_record = max(waiting, default=0)

    def _dump(self, kind: str, key: str) -> str | None:
        if kind in _CORE_KINDS:
            return codec.dump(self.state, kind, key)
        own: dict[str, dict[str, BaseModel]] = {
            "card": self.cards,  # type: ignore[dict-item]
            "spec": self.tasks,  # type: ignore[dict-item]
            "invite": self.invites,  # type: ignore[dict-item]
        }
        found = own[kind].get(key)
        return None if found is None else found.model_dump_json()

    def _now(self) -> float:
        return self._clock + time.monotonic()

    def decide(self, event: Event) -> list[Effect]:
        """Take an event into account: state, journal, results, listeners and who waits."""
        _, effects = decide(self.state, event, self._now())
        if self.state.changed:
            touched: set[str] = set()
            for kind, key in self.state.changed:
                self.journal.touch(kind, key)
                if kind == "node":
                    touched.add(key)
                    if key not in self.state.nodes and key in self.cards:
                        del self.cards[key]
                        self.beats.pop(key, None)
                        self.journal.touch("card", key)
                elif kind == "group" and key in self.state.groups:
                    touched.update(self.state.groups[key].members)
            self.state.changed.clear()
            self.wake(touched)
        if isinstance(event, TaskCreated | TaskDeleted):
            self.listeners.tell(event, "", 0)
        for effect in effects:
            self._follow(effect)
        return effects

    def _follow(self, effect: Effect) -> None:
        match effect:
            case ShardEnded():
                state = "done" if effect.done else "failed"
                self.add_result(
                    effect.task_id,
                    wire.ResultRow(
                        seq=0,
                        shard_id=effect.shard_id,
                        state=state,
                        group_id=effect.group_id,
                        reason=effect.reason,
                    ),
                )
            case TaskStopped():
                row = wire.ResultRow(seq=0, shard_id="", state="stopped", reason=effect.reason)
                self.add_result(effect.task_id, row)
            case NodeChanged() if effect.new in _SILENT:
                if effect.new == NodeState.EJECTED:
                    self.record(Ejection(node_id=effect.node_id, reason=effect.reason))
                self.metrics.pop(effect.node_id, None)
                self.reports.pop(effect.node_id, None)
                self.orders.pop(effect.node_id, None)
        if isinstance(
            effect,
            NodeChanged | GroupCreated | GroupReady | GroupDestroyed | MemberReplaced | TaskStopped,
        ):
            card = self.cards.get(effect.node_id) if isinstance(effect, NodeChanged) else None
            self.listeners.tell(effect, card.ip_address if card else "", card.port if card else 0)

    def add_result(self, task_id: str, row: wire.ResultRow) -> None:
        """Put a line into the results of a task."""
        self._last_result += 1
        row.seq = self._last_result
        self.journal.batch.results.append(
            {
                "seq": row.seq,
                "task_id": task_id,
                "shard_id": row.shard_id,
                "text": row.model_dump_json(),
            }
        )
        self.journal.wake()
        self.wake([f"task:{task_id}"])

    def record(self, record: Record) -> None:
        """Have the ledger record something, once, whatever happens to this process."""
        # Also its name in the ledger, where records of others are; later ones have higher numbers.
        self.last_record = max(self.last_record + 1, time.time_ns())
        text = record.model_dump_json()
        self.journal.batch.records.append({"number": self.last_record, "text": text})
        self.journal.wake()

    def wake(self, names: Iterable[str]) -> None:
        """Let those go on that wait for a node (by its id) or for results (`task:<id>`)."""
        for name in names:
            for event in self._watched.get(name, ()):
                event.set()

    def end(self) -> None:
        """Hold no answer back any more: the service ends."""
        self._ending = True
        self.wake(list(self._watched))

    def left(self, deadline: float) -> float:
        """Seconds for which an answer may be held back, by the monotonic clock."""
        return 0.0 if self._ending else deadline - time.monotonic()

    @contextmanager
    def watch(self, name: str) -> Iterator["Watch"]:
        """Watch what `wake` names; begun before one looks, so that nothing is missed."""
        event = asyncio.Event()
        self._watched[name].add(event)
        try:
            yield Watch(event)
        finally:
            self._watched[name].discard(event)
            if not self._watched[name]:
                del self._watched[name]


class Watch:
    """One who waits."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    async def wait(self, seconds: float) -> None:
        """Return when something happened since the last wait, or the time is over."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            pass
        self._event.clear()
