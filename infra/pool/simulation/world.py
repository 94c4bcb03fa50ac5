"""The machines as they really are, in steps of five seconds.

Each step: troubles strike, every other machine sends its heartbeat and hears its order, the
service ticks, and groups whose situation changed are looked at. A machine acts on the last order
that it heard. A pipeline stands while a member is off or cut off; a single node goes on without the
pool. What a node had in memory is lost when it is lost; its disk stays. Every GPU-second of a node
that is there is booked once.
"""

import heapq
import math
import random
from dataclasses import dataclass, field

from infra.pool.simulation.account import Account
from infra.pool.simulation.fleet import Machine, Model, Troubles
from infra.pool.simulation.policy import Judgement, Order, Policy, Report, Standby

STEP = 5.0
HOUR = 3600.0
COLD_SECONDS = 3600.0
"""The first loading of the whole fleet is no waste of a policy; it is booked apart."""
FULL_BEAT = 30.0
"""A node with nothing new sends its full report this often, and "alive" in between."""

Key = tuple[str, int]
WORK = "work"


@dataclass
class Run:
    """A group in one composition, as its machines live it."""

    key: Key
    members: tuple[str, ...]
    model: Model
    hearers: set[str] = field(default_factory=set)
    shard_id: str = ""
    progress: float = 0.0
    """Seconds of work that are done, at the speed of the class."""
    spent: float = 0.0
    """GPU-seconds that went into the shard."""
    finished: bool = False
    doing: str = "idle"
    """What its time is booked to since `since`: a cause, idle, or work."""
    since: float = 0.0
    speed: float = 1.0
    look_at: float = 0.0
    """When its situation changes by itself."""


@dataclass(frozen=True)
class Result:
    """What a group has handed in and a validator will judge."""

    group_id: str
    shard_id: str
    spent: float
    members: tuple[str, ...]
    liars: tuple[str, ...]


@dataclass(frozen=True)
class Loss:
    """A node was lost while its group worked on a shard."""

    at: float
    shard_id: str
    node_id: str
    survivors: frozenset[str]


class World:
    """A simulated fleet under one policy."""

    def __init__(
        self,
        machines: list[Machine],
        policy: Policy,
        troubles: Troubles,
        rng: random.Random,
        *,
        shard_seconds: float,
        requeues: bool,
        keeps_engine: bool,
    ):
        """`requeues`: lost shards run again; `keeps_engine`: weights survive a change of group."""
        self.machines = {machine.node_id: machine for machine in machines}
        self.policy, self.troubles, self.account = policy, troubles, Account()
        self._requeues, self._keeps_engine = requeues, keeps_engine
        self._rng, self._shard_seconds = rng, shard_seconds
        self._runs: dict[Key, Run] = {}
        self._losses: list[Loss] = []
        self._done: set[str] = set()
        self._events: list[tuple[float, int, str, Machine | Result]] = []
        self._count = 0
        for machine in machines:
            policy.join(machine, 0.0)
            self._later(0.0, troubles.churn, "lost", machine)
            self._later(0.0, troubles.partitions, "cut", machine)
            self._later(0.0, troubles.stragglers, "slow", machine)

    def run(self, seconds: float) -> Account:
        """Play; the account of the time."""
        halves = [list(self.machines.values())[n::2] for n in (0, 1)]
        for step in range(int(seconds / STEP)):
            now = step * STEP
            while self._events and self._events[0][0] <= now:
                _, _, kind, what = heapq.heappop(self._events)
                self._strike(kind, what, now)
            self._beats(halves[step % 2], now)
            self.policy.tick(now)
            self._count_deaths(now)
            for run in list(self._runs.values()):
                if run.look_at <= now:
                    self._look(run, now)
        self._close(seconds)
        return self.account

    # --- troubles ---

    def _push(self, at: float, kind: str, what: Machine | Result) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, kind, what))

    def _later(self, now: float, rate: float, kind: str, machine: Machine) -> None:
        if rate > 0:
            self._push(now + self._rng.expovariate(rate / HOUR), kind, machine)

    def _strike(self, kind: str, what: Machine | Result, now: float) -> None:
        troubles = self.troubles
        if isinstance(what, Result):
            self._judge(what, now)
            return
        if kind == "lost":
            self._lose(what, now)
            self._push(now + self._rng.expovariate(1.0 / troubles.return_seconds), "back", what)
        elif kind == "back":
            what.online, what.booked_until = True, now
            if not what.excluded:
                self.policy.join(what, now)
            self._later(now, troubles.churn, "lost", what)
        elif kind == "cut":
            sigma = troubles.partition_sigma
            length = self._rng.lognormvariate(math.log(troubles.partition_median), sigma)
            what.cut_off_until = now + length
            self._later(now + length, troubles.partitions, "cut", what)
        else:
            what.slow_until = now + troubles.straggle_seconds
            self._later(what.slow_until, troubles.stragglers, "slow", what)
        self._stir(what, now)

    def _stir(self, machine: Machine, now: float) -> None:
        """Its group has to be looked at."""
        run = self._runs.get(machine.part_of) if machine.part_of else None
        if run is not None:
            run.look_at = now

    def _lose(self, machine: Machine, now: float) -> None:
        run = self._runs.get(machine.part_of) if machine.part_of else None
        if run is not None and run.shard_id and not run.finished and not machine.excluded:
            others = frozenset(run.members) - {machine.node_id}
            self._losses.append(Loss(now, run.shard_id, machine.node_id, others))
        self._hear(machine, None, now)
        self._book_free(machine, now)
        machine.online = False
        machine.loaded = machine.loading = machine.standby = None

    # --- heartbeats ---

    def _beats(self, machines: list[Machine], now: float) -> None:
        quick, news = [], self.policy.news
        for machine in machines:
            if not machine.online or machine.excluded or machine.cut_off_until > now:
                continue
            run = self._runs.get(machine.part_of) if machine.part_of else None
            busy = run is not None and run.doing == WORK and run.look_at > now
            if busy and machine.node_id not in news and now - machine.full_beat_at < FULL_BEAT:
                quick.append(machine.node_id)
            else:
                self._beat(machine, now)
        self.policy.beats(quick, now)

    def _beat(self, machine: Machine, now: float) -> None:
        machine.full_beat_at = now
        run = self._runs.get(machine.part_of) if machine.part_of else None
        _finish_loading(machine, now)
        if run is None:
            ready = machine.loaded is not None and machine.loaded == machine.standby
            report = Report(machine.node_id, "", -1, False, "", 0.0, (), ready)
        else:
            self._settle(run, now)
            report = Report(
                machine.node_id,
                run.key[0],
                run.key[1],
                machine.loaded == _part(run, machine),
                run.shard_id,
                min(run.progress / self._shard_seconds, 0.999),
                tuple(m.node_id for m in self._members(run) if not _reachable(m, now)),
                False,
            )
        self._hear(machine, self.policy.beat(report, now), now)

    def _hear(self, machine: Machine, told: Order | Standby | None, now: float) -> None:
        """The machine follows an order; what it leaves may break off."""
        order = told if isinstance(told, Order) else None
        if isinstance(told, Standby) and machine.standby != told.part:
            machine.standby = told.part
            self._load(machine, told.model, told.part, now)
        key = (order.group_id, order.version) if order else None
        if machine.part_of != key:
            if machine.part_of is None:
                self._book_free(machine, now)
            else:
                self._leave(machine, now)
            machine.part_of, machine.booked_until = key, now
        if order is None or key is None:
            return
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = Run(key, order.members, order.model, since=now, look_at=now)
        if machine.node_id not in run.hearers:
            self._settle(run, now)
            run.hearers.add(machine.node_id)
            run.look_at = now
            machine.standby = None
            self._load(machine, run.model, _part(run, machine), now)
        if order.shard_id != run.shard_id and not run.finished:
            self._settle(run, now)
            self.account.add("duplicate" if run.shard_id in self._done else "lost", run.spent)
            run.shard_id, run.progress, run.spent, run.look_at = order.shard_id, 0.0, 0.0, now

    def _leave(self, machine: Machine, now: float) -> None:
        run = self._runs.get(machine.part_of) if machine.part_of else None
        if run is None:
            return
        self._settle(run, now)
        run.hearers.discard(machine.node_id)
        run.look_at = now
        if not run.hearers:
            del self._runs[run.key]
            self.account.add(self.policy.broken_off(run.key[0]), run.spent)

    def _load(self, machine: Machine, model: Model, part: tuple[str, int, int], now: float) -> None:
        if self._keeps_engine and part in (machine.loaded, machine.loading):
            return
        seconds = model.load_seconds
        if model.name not in machine.disk:
            seconds += model.download_seconds
        machine.loaded, machine.loading, machine.loading_until = None, part, now + seconds

    # --- work ---

    def _members(self, run: Run) -> list[Machine]:
        return [self.machines[node_id] for node_id in run.members]

    def _settle(self, run: Run, now: float) -> None:
        """Book the time since the last look to what the group was doing."""
        seconds, run.since = now - run.since, now
        gpu_seconds = seconds * sum(self.machines[node_id].gpus for node_id in run.hearers)
        if run.doing == WORK:
            run.progress += seconds * run.speed
            run.spent += gpu_seconds
        else:
            cold = run.doing == "reload" and now < COLD_SECONDS
            self.account.add("cold_start" if cold else run.doing, gpu_seconds)
        self.account.add("available", gpu_seconds)

    def _look(self, run: Run, now: float) -> None:
        """What the group does from now on, and when to look again."""
        self._settle(run, now)
        members = self._members(run)
        for machine in members:
            _finish_loading(machine, now)
        ends = [m.cut_off_until for m in members] + [m.slow_until for m in members]
        run.look_at = min((end for end in ends if end > now), default=math.inf)
        done = run.progress >= self._shard_seconds - 1e-6
        if any(not m.online or m.excluded for m in members) or (
            len(members) > 1 and any(m.cut_off_until > now for m in members)
        ):
            run.doing = "stuck" if self.policy.is_stuck(run.key[0]) else "detection"
            run.look_at = min(run.look_at, now + 60.0)
        elif len(run.hearers) < len(members) or any(m.loaded != _part(run, m) for m in members):
            run.doing = "reload"
            ends = [m.loading_until for m in members if m.loading_until > now]
            run.look_at = min([run.look_at, *ends])
        elif not run.shard_id:
            run.doing = "idle"
        elif done:
            run.doing, run.finished = "idle", True
            if all(_reachable(machine, now) for machine in members):
                self._submit(run, members, now)
        else:
            self._work(run, members, now)

    def _work(self, run: Run, members: list[Machine], now: float) -> None:
        if run.progress == 0.0:
            self._recovered(run, now)
        factor = self.troubles.straggle_factor
        slowest = min(m.rate * (factor if m.slow_until > now else 1.0) for m in members)
        run.doing, run.speed = WORK, slowest / max(m.rate for m in members)
        rest = (self._shard_seconds - run.progress) / run.speed
        run.look_at = min(run.look_at, now + rest)

    def _submit(self, run: Run, members: list[Machine], now: float) -> None:
        liars = tuple(machine.node_id for machine in members if machine.liar)
        self.policy.submitted(run.key[0], run.shard_id, now)
        result = Result(run.key[0], run.shard_id, run.spent, run.members, liars)
        self._push(now + self.troubles.verdict_seconds, "verdict", result)
        run.shard_id, run.progress, run.spent, run.finished = "", 0.0, 0.0, False
        run.look_at = now + STEP
        for machine in members:
            self._beat(machine, now)
        if run.shard_id:
            self._look(run, now)

    def _judge(self, result: Result, now: float) -> None:
        guilty, rate = result.liars, self.troubles.false_refusals
        if not guilty and rate > 0 and self._rng.random() < rate:
            guilty = (self._rng.choice(result.members),)
        hard = bool(result.liars)
        verdict = Judgement(result.group_id, result.shard_id, not guilty, guilty, hard)
        counts = self.policy.judged(verdict, now)
        if guilty:
            self.account.add("rejected", result.spent)
            for machine in (self.machines[n] for n in guilty if self.policy.is_out(n)):
                self._hear(machine, None, now)
                self._book_free(machine, now)
                machine.excluded = True
                for run in self._runs.values():
                    if machine.node_id in run.members:
                        run.look_at = now
        elif counts:
            self._done.add(result.shard_id)
            self.account.shards += 1
            self.account.add("useful", result.spent)
        else:
            self.account.add("duplicate", result.spent)

    # --- bookkeeping ---

    def _book_free(self, machine: Machine, now: float) -> None:
        """Book a machine's time without a group."""
        if machine.online and not machine.excluded and machine.part_of is None:
            gpu_seconds = (now - machine.booked_until) * machine.gpus
            self.account.add("idle", gpu_seconds)
            self.account.add("available", gpu_seconds)
        machine.booked_until = now

    def _recovered(self, run: Run, now: float) -> None:
        """Work that was lost runs again: the same shard, or, without a queue, the survivors."""
        for loss in list(self._losses):
            same = loss.shard_id == run.shard_id
            if same if self._requeues else not loss.survivors.isdisjoint(run.members):
                self._losses.remove(loss)
                self.account.recoveries.append(now - loss.at)

    def _count_deaths(self, now: float) -> None:
        for node_id in self.policy.newly_dead():
            self.account.deaths += 1
            self.account.wrong_deaths += self.machines[node_id].online
            if not self._requeues:
                # Nobody takes over a single node's work: its death is all that the pool learns.
                for loss in [x for x in self._losses if x.node_id == node_id and not x.survivors]:
                    self._losses.remove(loss)
                    self.account.recoveries.append(now - loss.at)

    def _close(self, now: float) -> None:
        for run in self._runs.values():
            self._settle(run, now)
            # What is under way at the end is neither useful nor wasted.
            self.account.add("unfinished", run.spent)
        for machine in self.machines.values():
            self._book_free(machine, now)
            self.account.false_bans += not machine.liar and self.policy.is_out(machine.node_id)
        self.account.unrecovered = len(self._losses)


def _reachable(machine: Machine, now: float) -> bool:
    return machine.online and machine.cut_off_until <= now


def _finish_loading(machine: Machine, now: float) -> None:
    if machine.loading is not None and machine.loading_until <= now:
        machine.disk.add(machine.loading[0])
        machine.loaded, machine.loading = machine.loading, None


def _part(run: Run, machine: Machine) -> tuple[str, int, int]:
    return run.model.name, run.members.index(machine.node_id), len(run.members)
