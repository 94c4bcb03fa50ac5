"""The rounds: rollouts dealt ahead, batches chosen, versions trained, published and measured.

Generation runs on while the trainer trains; how far ahead is what `staleness` bounds: rollouts of
step N come from a policy version in [N - 1 - staleness, N - 1]. Invariants: what step N trains on
is chosen once and written down before it is trained; a version is published once, in order; with
staleness 0 and all uploads checked the choice depends on the config alone, so that a run that was
killed anywhere ends with the same weights as one that was not (which uploads are checked depends on
a secret, and limits refuse an honest sample now and then); an evaluation is of what is committed
when its last answer is there. Everything that a killed driver needs again is in files.
"""

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infra.broadcast import Origin
from infra.storage import Store
from tasks.train.rollouts.job import RolloutJob, is_held_out
from tasks.train.rounds.batch import StepBatch
from tasks.train.rounds.config import RoundsConfig
from tasks.train.rounds.dealer import Dealer
from tasks.train.rounds.evaluation import Answer, Evaluation, evaluate
from tasks.train.rounds.layout import RlLayout
from tasks.train.rounds.plan import Planner
from tasks.train.rounds.selection import Rollouts, figures, record, samples_of
from tasks.train.rounds.trainer_process import TrainerProcess
from tasks.train.trainer import selection_path, weights_path, write_selection
from tasks.train.trainer.metrics import Metrics

POLL_SECONDS = 0.02
MARGIN = 4
"""Versions beyond the staleness bound that stay published, for evaluations that are under way."""
KEPT_WEIGHTS = 2
"""Versions whose weights stay beside the trainer; nodes have theirs from the origin."""

HELD_OUT_FIRST, ROLLOUTS = 0, 1
"""Priorities of jobs."""


@dataclass(frozen=True)
class Parts:
    """What the driver drives."""

    store: Store
    layout: RlLayout
    planner: Planner
    dealer: Dealer
    trainer: TrainerProcess
    origin: Origin
    start_model: Path
    committed: Callable[[RolloutJob], Rollouts | None]
    """The accepted rollouts of a job, if there are any."""
    steady: AbstractContextManager[Any]
    """While it is held, no accepted rollouts are taken back."""


@dataclass
class Events:
    """What a caller may want to hear of."""

    stepped: Callable[[dict[str, Any]], None] = lambda step: None
    evaluated: Callable[[Evaluation], None] = lambda evaluation: None


@dataclass
class _HeldOut:
    jobs: list[RolloutJob]
    waiting: set[int]


class Driver:
    """One run's rounds, from wherever it stands to its last version."""

    def __init__(self, parts: Parts, rounds: RoundsConfig, events: Events) -> None:
        self._parts = parts
        self._rounds = rounds
        self._events = events
        self._run_dir = self._local_dir()
        self._version = -1
        self._batches: dict[int, StepBatch] = {}
        self._files: dict[int, dict[int, Rollouts]] = defaultdict(dict)
        self._held_out: dict[int, _HeldOut] = {}
        self._selected: set[int] = set()
        """Steps that are known to be chosen; a choice stands."""
        self._kinds = {task.task_id: task.kind for task in parts.planner.split.all()}
        self._share: float | None = None
        self._clock = time.monotonic()
        self._looked = self._clock
        self._idle = 0.0
        """Seconds since the newest version in which no node had anything to do."""

    def run(self) -> None:
        """Drive until the last version is trained, published and measured."""
        self._resume()
        changed = True
        while self._version < self._rounds.steps or self._held_out:
            if changed:
                self._deal()
                changed = self._choose()
            for job in self._parts.dealer.settled(0.0 if changed else POLL_SECONDS):
                self._arrived(job)
                changed = True
            changed |= self._look()

    def seconds(self) -> float:
        """Time that the run has taken, over all its parts."""
        return time.monotonic() - self._clock

    def _local_dir(self) -> Path:
        store, layout = self._parts.store, self._parts.layout
        directory = store.local_path(f"{layout.trainer}/trainer.log")
        if directory is None:
            raise ValueError(f"{store.root}: the trainer needs a file system, not an object store")
        return directory.parent

    def _resume(self) -> None:
        parts = self._parts
        measured = parts.store.list(f"{parts.layout.root}/evaluations")
        taken = [parts.store.read_json(name)["seconds"] for name in measured]
        self._clock -= max(taken, default=0.0)
        if not parts.origin.versions():
            parts.origin.publish(0, parts.start_model)
        trained = trained_versions(self._run_dir)
        for version in trained:
            if version > parts.origin.versions()[-1]:
                parts.origin.publish(version, weights_path(self._run_dir, version))
        self._version = trained[-1] if trained else 0
        self._metrics = Metrics(self._run_dir.parent, self._version)
        for version in parts.origin.versions():
            self._measure(version)

    def _deal(self) -> None:
        ahead = min(self._rounds.steps, self._version + 1 + self._rounds.staleness)
        for step in range(self._version + 1, ahead + 1):
            if self._chosen(step):
                continue
            batch = self._batch(step)
            for number in batch.to_issue():
                job = self._parts.planner.rollouts(step, number, *self._rounds.versions(step))
                self._parts.dealer.deal(job, ROLLOUTS + step)

    def _batch(self, step: int) -> StepBatch:
        if step not in self._batches:
            batch = StepBatch(step, self._rounds)
            if self._share is not None:
                batch.expected_share = self._share
            self._batches[step] = batch
            # What an earlier part of the run has committed is not made again.
            first = self._parts.planner.rollouts(step, 0, *self._rounds.versions(step))
            left = self._parts.store.list(self._parts.layout.folder(first))
            for number in range(self._rounds.max_jobs_per_step if left else 0):
                job = self._parts.planner.rollouts(step, number, *self._rounds.versions(step))
                if (rollouts := self._parts.committed(job)) is not None:
                    self._files[step][number] = rollouts
                    batch.accept(number, rollouts.useful)
        return self._batches[step]

    def _chosen(self, step: int) -> bool:
        if step not in self._selected and selection_path(self._run_dir, step).is_file():
            self._selected.add(step)
        return step in self._selected

    def _choose(self) -> bool:
        """Write the selections that are due, in order of steps; whether there is more to deal."""
        more = False
        ahead = min(self._rounds.steps, self._version + 1 + self._rounds.staleness)
        for step in range(self._version + 1, ahead + 1):
            if self._chosen(step):
                continue
            numbers = self._batch(step).selected()
            if numbers is None or self._overtakes_evaluation(step):
                break
            more = True
            # What is looked at here is still accepted when it is chosen.
            with self._parts.steady:
                if self._taken_back(step):
                    break
                made = self._write(step, [self._files[step][number] for number in numbers])
            self._share = made["useful_groups"] / made["groups"]
            self._parts.dealer.drop(step)
            del self._batches[step], self._files[step]
            self._events.stepped(made)
        return more

    def _write(self, step: int, files: Sequence[Rollouts]) -> dict[str, Any]:
        """What a step is made of: its record, then what the trainer waits for."""
        made = record(step, files, self._kinds)
        made["seconds"] = self.seconds()
        # Since the step before; all that nodes did, also for what was not chosen.
        made["jobs"] = asdict(self._parts.dealer.tally())
        self._parts.store.write_json(self._parts.layout.step(step), made, overwrite=True)
        samples = samples_of(files, self._kinds)
        known = figures(step, files, self._kinds)
        write_selection(selection_path(self._run_dir, step), samples, known)
        return made

    def _overtakes_evaluation(self, step: int) -> bool:
        """Whether training a step would let a version go that is still to be measured."""
        return any(step - version > self._rounds.staleness + MARGIN for version in self._held_out)

    def _taken_back(self, step: int) -> bool:
        """Whether rollouts of a step do not count any more; their jobs go out again."""
        gone = [
            number
            for number, file in self._files[step].items()
            if not self._parts.store.exists(f"{file.path}.json")
        ]
        for number in gone:
            del self._files[step][number]
            self._batches[step].forget(number)
        return bool(gone)

    def _arrived(self, job: RolloutJob) -> None:
        rollouts = self._parts.committed(job)
        if rollouts is None:
            # Its node was caught since.
            priority = HELD_OUT_FIRST if is_held_out(job) else ROLLOUTS + job.step
            self._parts.dealer.deal(job, priority)
        elif is_held_out(job):
            waiting = self._held_out[job.step].waiting
            waiting.discard(job.number)
            if not waiting:
                self._finish(job.step)
        elif job.step in self._batches:
            self._files[job.step][job.number] = rollouts
            self._batches[job.step].accept(job.number, rollouts.useful)

    def _look(self) -> bool:
        """Publish the next version when the trainer has made it; whether it has."""
        now = time.monotonic()
        waited, self._looked = now - self._looked, now
        if self._parts.dealer.idle:
            self._idle += waited
        following = self._version + 1
        if following > self._rounds.steps or not self._chosen(following):
            return False
        if not self._parts.trainer.done(following):
            return False
        self._parts.origin.publish(following, weights_path(self._run_dir, following))
        self._version = following
        self._metrics.add(following, {"time/wait_for_ckpt": self._idle})
        self._idle = 0.0
        self._measure(following)
        for old in superseded(trained_versions(self._run_dir), following):
            shutil.rmtree(weights_path(self._run_dir, old))
        return True

    def _measure(self, version: int) -> None:
        """Deal the held-out jobs of a version, if it is to be measured and is not yet."""
        parts, planner = self._parts, self._parts.planner
        if not planner.evaluation.due(version, self._rounds.steps):
            return
        if parts.store.exists(parts.layout.evaluation(version)):
            return
        self._held_out[version] = _HeldOut(planner.evaluations(version), set())
        self._finish(version)

    def _finish(self, version: int) -> None:
        """Write an evaluation whose answers are all there, else deal the jobs of the missing."""
        parts, held_out = self._parts, self._held_out[version]
        # What is read here still counts when it is written down.
        with parts.steady:
            committed = [(job, parts.committed(job)) for job in held_out.jobs]
            missing = [job for job, rollouts in committed if rollouts is None]
            if not missing:
                given = [
                    answer
                    for job, rollouts in committed
                    for answer in answers(job, rollouts.rows if rollouts else (), self._kinds)
                ]
                found = evaluate(version, self.seconds(), given)
                path = parts.layout.evaluation(version)
                parts.store.write_json(path, found.to_json(), overwrite=True)
        if missing:
            held_out.waiting = {job.number for job in missing}
            for job in missing:
                parts.dealer.deal(job, HELD_OUT_FIRST)
            return
        del self._held_out[version]
        self._metrics.add(version, found.figures(parts.planner.evaluation.samples))
        self._events.evaluated(found)


def trained_versions(run_dir: Path) -> list[int]:
    """Policy versions whose weights are there, ascending."""
    names = [path.name for path in weights_path(run_dir, 0).parent.glob("step_*")]
    return sorted(int(name.removeprefix("step_")) for name in names)


def superseded(trained: Sequence[int], published: int) -> list[int]:
    """Versions whose weights may go: with staleness the trainer is ahead of what is published."""
    return [version for version in trained if version <= published][:-KEPT_WEIGHTS]


def answers(
    job: RolloutJob, rows: Sequence[dict[str, Any]], kinds: Mapping[str, str]
) -> list[Answer]:
    """What was asked for as it counts; what was set aside has no score."""
    given = {row["sample_id"]: row for row in rows}
    asked = [
        (group, given.get(job.sample_id(group.group, at)))
        for group in job.groups
        for at in range(len(group.seeds))
    ]
    return [
        Answer(
            kind=kinds[group.task_id],
            task_id=group.task_id,
            greedy=job.sampling.temperature == 0.0,
            score=row["task_rewards"] if row else None,
            tokens=len(row["output_tokens"]) if row else None,
            target=group.target_length,
        )
        for group, row in asked
    ]
