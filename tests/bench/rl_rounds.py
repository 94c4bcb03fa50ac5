"""Rounds by the settings of a profile for benchmarks, and their held-out rates with intervals."""

import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.profiles import load_config
from flows.rl_config import RlConfig
from flows.rl_runs import rounds_of
from infra.storage import Store, list_committed, read_table
from tasks.train.rounds.estimates import Estimate, over_tasks
from tasks.train.rounds.layout import RlLayout
from tasks.train.rounds.report import LAST, read_evaluations
from tasks.train.rounds.session import Rounds
from tasks.train.rounds.tasks import read_split


def rounds_by(profile: str, dataset: Path, settings: Mapping[str, Any]) -> Rounds:
    """What a profile's rounds are, on the tasks of a dataset and with some settings changed."""
    changed = [f"{name}={value}" for name, value in settings.items()]
    config = load_config(RlConfig, profile, [f"tasks.dataset={dataset}", *changed])
    return rounds_of(config, read_split(config.tasks))


def last_rates(store: Store, layout: RlLayout, rounds: Rounds) -> dict[str, Estimate]:
    """Kind -> solve rate at the sampling temperature, mean of the last three evaluations.

    The interval is over tasks: all answers to one task are one value. Version 0 never counts.
    """
    kinds = {task.task_id: task.kind for task in rounds.split.held_out}
    scores: dict[str, list[float]] = defaultdict(list)
    versions = [found.version for found in read_evaluations(store, layout) if found.version > 0]
    for version in versions[-LAST:]:
        for file in list_committed(store, f"{layout.root}/held_out/step_{version}"):
            columns = ["task_id", "task_rewards", "temperature"]
            for row in read_table(store, file.path, columns=columns).to_pylist():
                if row["temperature"] > 0.0 and row["task_rewards"] is not None:
                    scores[row["task_id"]].append(float(row["task_rewards"] == 1.0))
    values: dict[str, list[float]] = defaultdict(list)
    for task, found in scores.items():
        values[kinds[task]].append(sum(found) / len(found))
    return {kind: over_tasks(values[kind]) for kind in sorted(values)}


def curve(store: Store, layout: RlLayout, kind: str) -> list[tuple[int, float]]:
    """(version, solve rate at the sampling temperature) of every evaluation."""
    return [
        (found.version, round(found.kinds[kind].sampled.mean, 4))
        for found in read_evaluations(store, layout)
    ]


def compared(ours: Estimate, peer: Estimate) -> dict[str, Any]:
    """Two rates as fields of a JSON line; within noise: their difference's 95 % interval holds 0.

    The interval is that of two independent estimates. It has the chance of tasks and answers in it
    and not that of another seed.
    """
    difference = ours.mean - peer.mean
    half = math.hypot(ours.high - ours.low, peer.high - peer.low) / 2
    return {
        "ours": round(ours.mean, 4),
        "peer": round(peer.mean, 4),
        "ratio": round(ours.mean / peer.mean, 3) if peer.mean else None,
        "unit": "share",
        "interval": [round(ours.low, 4), round(ours.high, 4)],
        "peer_interval": [round(peer.low, 4), round(peer.high, 4)],
        "difference": round(difference, 4),
        "difference_interval": [round(difference - half, 4), round(difference + half, 4)],
        "within_noise": abs(difference) <= half,
    }
