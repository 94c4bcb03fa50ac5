"""What the jobs of a run hold: a pure function of its seed, the step and the job's number.

Invariants: nothing comes from a worker; the same numbers give the same tasks, targets and seeds in
every process (Philox 4x64, counter based, one stream per purpose), so that anybody who knows the
run can derive which prompts and seeds an upload must have. Jobs of one step may share a task; a job
holds it once. A group's number in its step is job number x groups of a job + its place.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from infra.inference.prompts import ChatTokenizer
from tasks.generate.config import SamplingConfig
from tasks.train.objective import LengthConfig
from tasks.train.objective.lengths import instruction
from tasks.train.rollouts.job import HELD_OUT_SUFFIX, NO_TARGET, Group, RolloutJob
from tasks.train.rounds.config import RoundsConfig
from tasks.train.rounds.errors import NoRoom
from tasks.train.rounds.evaluation import EvaluationConfig
from tasks.train.rounds.tasks import RlTask, TaskSplit

TASKS, SEEDS, TARGETS, HELD_OUT = 1, 2, 3, 4
"""Purposes that numbers are drawn for."""

MAX_SEED = 2**63 - 1


def stream(run_seed: int, purpose: int, step: int, job: int) -> np.random.Generator:
    """The random numbers of one purpose for one job."""
    # The lowest word of the counter is what the generator counts up.
    place = np.array([0, 0, job, step], dtype=np.uint64)
    key = np.array([run_seed, purpose], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=place))


@dataclass(frozen=True)
class Planner:
    """Makes the jobs of one run."""

    run_id: str
    seed: int
    model: str
    split: TaskSplit
    tokenizer: ChatTokenizer
    sampling: SamplingConfig
    rounds: RoundsConfig
    lengths: LengthConfig
    evaluation: EvaluationConfig

    def rollouts(self, step: int, number: int, least: int, most: int) -> RolloutJob:
        """Job `number` of a rollout step, by a policy version from `least` to `most`."""
        count = min(self.rounds.groups_per_job, len(self.split.train))
        size = self.rounds.group_size
        picked = stream(self.seed, TASKS, step, number).choice(
            len(self.split.train), size=count, replace=False
        )
        seeds = draw_seeds(stream(self.seed, SEEDS, step, number), count, size)
        targets = self._targets(stream(self.seed, TARGETS, step, number), count)
        groups = [
            self._group(number * count + place, self.split.train[index], target, own)
            for place, (index, target, own) in enumerate(zip(picked, targets, seeds, strict=True))
        ]
        return self._job(self.run_id, step, number, least, most, self.sampling, groups)

    def evaluations(self, version: int) -> list[RolloutJob]:
        """The held-out jobs of a policy version: sampled, then greedy.

        Seeds and targets are the same for every version, so that versions differ by their weights
        alone.
        """
        asked: list[RlTask] = []
        for kind in self.split.kinds():
            members = [task for task in self.split.held_out if task.kind == kind]
            asked += members[: self.evaluation.tasks or len(members)]
        targets = self._targets(stream(self.seed, HELD_OUT, 0, 0), len(asked))
        jobs: list[RolloutJob] = []
        for greedy in (False, True):
            size = 1 if greedy else self.evaluation.samples
            seeds = draw_seeds(stream(self.seed, HELD_OUT, 1, int(greedy)), len(asked), size)
            groups = [
                self._group(place, task, target, own)
                for place, (task, target, own) in enumerate(zip(asked, targets, seeds, strict=True))
            ]
            sampling = self.sampling
            if greedy:
                sampling = sampling.model_copy(update={"temperature": 0.0})
            per_job = max(1, self.evaluation.job_samples // size)
            for first in range(0, len(groups), per_job):
                # Its own name in the run: no held-out sample can be taken for one to train on.
                jobs.append(
                    self._job(
                        f"{self.run_id}{HELD_OUT_SUFFIX}",
                        version,
                        len(jobs),
                        version,
                        version,
                        sampling,
                        groups[first : first + per_job],
                    )
                )
        return jobs

    def check_room(self, tasks: Iterable[RlTask], answer: int, limit: str, room: int) -> None:
        """NoRoom where a prompt and `answer` tokens are more than `room`; `limit` is its name."""
        longest = max(self.lengths.targets, default=NO_TARGET)
        for task in tasks:
            prompt = len(self._rendered(task, longest)[1])
            if prompt + answer > room:
                raise NoRoom(task.task_id, prompt, answer, limit, room)

    def _job(
        self,
        run_id: str,
        step: int,
        number: int,
        least: int,
        most: int,
        sampling: SamplingConfig,
        groups: list[Group],
    ) -> RolloutJob:
        return RolloutJob(
            run_id=run_id,
            step=step,
            number=number,
            model=self.model,
            least_version=least,
            most_version=most,
            sampling=sampling,
            batch_groups=len(groups),
            groups=groups,
        )

    def _targets(self, drawn: np.random.Generator, count: int) -> list[int]:
        if not self.lengths.targets:
            return [NO_TARGET] * count
        places = drawn.integers(0, len(self.lengths.targets), size=count)
        return [self.lengths.targets[place] for place in places]

    def _rendered(self, task: RlTask, target: int) -> tuple[str, list[int]]:
        """Text of the last message, and the prompt's token ids."""
        messages = [dict(message) for message in task.prompt]
        if target != NO_TARGET:
            messages[-1]["content"] += instruction(target, self.lengths)
        return messages[-1]["content"], self.tokenizer.render(messages)[0]

    def _group(self, number: int, task: RlTask, target: int, seeds: list[int]) -> Group:
        prompt, ids = self._rendered(task, target)
        return Group(
            group=number,
            task_id=task.task_id,
            problem_id=task.problem_id,
            task_type=task.task_type,
            prompt=prompt,
            prompt_ids=ids,
            target_length=target,
            seeds=seeds,
        )


def draw_seeds(drawn: np.random.Generator, groups: int, size: int) -> list[list[int]]:
    """A seed of 63 bits for each sample of each group."""
    words = drawn.integers(0, MAX_SEED, size=(groups, size), dtype=np.int64, endpoint=True)
    return [[int(word) for word in row] for row in words]
