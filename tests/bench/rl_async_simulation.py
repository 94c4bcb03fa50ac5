"""Rounds on separate devices, as discrete events: how long do they take, synchronous or not?

A job occupies one inference device for one of the measured times, then its upload the one checking
device, as uploads are checked one after the other; a step occupies the trainer for one of the
measured times. Jobs of step n may start when version n - 1 - staleness is published (a measured
time after its training ends); step n trains when its uploads are checked and step n - 1 is trained.
Times are drawn once per seed and are the same for every staleness: equal samples.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Measured:
    """Seconds, as they were measured in a real run."""

    job: Sequence[float]
    check: Sequence[float]
    train: Sequence[float]
    publish: float


@dataclass(frozen=True)
class Outcome:
    seconds: float
    trainer_idle: float
    """Share of the time."""
    inference_idle: float
    checker_idle: float


def simulate(
    measured: Measured, steps: int, jobs_per_step: int, devices: int, staleness: int, seed: int
) -> Outcome:
    rng = np.random.Generator(np.random.Philox(seed))
    jobs = rng.choice(np.asarray(measured.job), size=(steps, jobs_per_step))
    checks = rng.choice(np.asarray(measured.check), size=(steps, jobs_per_step))
    train = rng.choice(np.asarray(measured.train), size=steps)
    free = [0.0] * devices
    checked = trained = 0.0
    published = [0.0]
    """published[v]: when version v is there."""
    for step in range(1, steps + 1):
        allowed = published[max(0, step - 1 - staleness)]
        ends = []
        for seconds in jobs[step - 1]:
            end = max(heapq.heappop(free), allowed) + float(seconds)
            heapq.heappush(free, end)
            ends.append(end)
        for end, seconds in zip(sorted(ends), checks[step - 1], strict=True):
            checked = max(checked, end) + float(seconds)
        trained = max(trained, checked) + float(train[step - 1])
        published.append(trained + measured.publish)
    busy = float(jobs.sum()) / devices
    return Outcome(
        trained,
        1 - float(train.sum()) / trained,
        1 - busy / trained,
        1 - float(checks.sum()) / trained,
    )


def balanced_devices(measured: Measured, jobs_per_step: int) -> int:
    """As many inference devices as keep pace with the trainer."""
    generation = float(np.mean(measured.job)) * jobs_per_step
    return max(1, round(generation / float(np.mean(measured.train))))
