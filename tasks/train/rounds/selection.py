"""From accepted rollouts to what a step trains on, and the record of that choice.

Invariants: every row of a selected file goes in that has a score and belongs to a group with a
spread of advantages; the choice is written down (files, sha256, groups) before it is trained on,
and a step that has its selection keeps it; a sample is in one selection at most.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from infra.storage import Store, read_table
from tasks.train.objective import LengthConfig
from tasks.train.objective.filters import has_signal
from tasks.train.trainer import Sample

COLUMNS = [
    "sample_id", "task_id", "group", "input_tokens", "output_tokens", "output_logprobs",
    "advantages", "rewards", "task_rewards", "step", "target_lengths", "temperature",
    "finish_reason",
]  # fmt: skip


@dataclass(frozen=True)
class Rollouts:
    """One committed file, as far as training needs it."""

    number: int
    path: str
    """Of the committed shard, without extension."""
    sha256: str
    rows: list[dict[str, Any]]

    @property
    def useful(self) -> int:
        """Groups with a spread of advantages."""
        return len(useful_groups(self.rows))


def rows_of(store: Store, path: str) -> list[dict[str, Any]]:
    """The columns of committed rollouts that training needs."""
    rows: list[dict[str, Any]] = read_table(store, path, columns=COLUMNS).to_pylist()
    return rows


def useful_groups(rows: Sequence[dict[str, Any]]) -> set[int]:
    """Numbers of the groups that teach something."""
    groups: dict[int, list[float | None]] = defaultdict(list)
    for row in rows:
        groups[row["group"]].append(row["advantages"])
    return {group for group, advantages in groups.items() if has_signal(advantages)}


def samples_of(files: Sequence[Rollouts], lengths: LengthConfig) -> list[Sample]:
    """The samples of a step, in order of job, group and sample."""
    samples: list[Sample] = []
    for file in files:
        useful = useful_groups(file.rows)
        for row in file.rows:
            if row["group"] in useful and row["advantages"] is not None and row["output_tokens"]:
                cut = row["finish_reason"] == "length" and lengths.overlong == "mask"
                samples.append(
                    Sample(
                        sample_id=row["sample_id"],
                        prompt_ids=tuple(row["input_tokens"]),
                        output_ids=tuple(row["output_tokens"]),
                        behaviour_logprobs=np.asarray(row["output_logprobs"], np.float32),
                        advantage=row["advantages"],
                        temperature=row["temperature"],
                        trainable=not cut,
                    )
                )
    return samples


def record(step: int, files: Sequence[Rollouts], kinds: dict[str, str]) -> dict[str, Any]:
    """What a step was made of, as JSON; `kinds` maps task ids to kinds."""
    rows = [row for file in files for row in file.rows]
    scored: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["task_rewards"] is not None:
            scored[kinds[row["task_id"]]].append(row["task_rewards"])
    groups = sum(len({row["group"] for row in file.rows}) for file in files)
    return {
        "step": step,
        "files": [{"path": file.path, "sha256": file.sha256} for file in files],
        "groups": groups,
        "useful_groups": sum(file.useful for file in files),
        "samples": len(rows),
        "unscored": sum(row["task_rewards"] is None for row in rows),
        "tokens": sum(len(row["output_tokens"]) for row in rows),
        "staleness": {
            str(lag): count
            for lag, count in sorted(Counter(step - 1 - row["step"] for row in rows).items())
        },
        "task_reward": {kind: sum(s) / len(s) for kind, s in sorted(scored.items())},
        "cut": sum(row["finish_reason"] == "length" for row in rows),
    }
