"""From accepted rollouts to what a step trains on, and the record of that choice.

Invariants: every row of a selected file goes in that has an advantage, in a useful group; a
group is useful by what can be trained on, so a step never consists of cut samples that carry no
loss; the choice is written down (files, sha256, groups) before it is trained on, and a step that
has its selection keeps it; a sample is in one selection at most.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
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
    """With a column `trainable`."""
    errored: int
    """Rows of the upload that were set aside, since their node failed at them."""

    @property
    def useful(self) -> int:
        """Groups that teach something."""
        return len(useful_groups(self.rows))


def rows_of(store: Store, path: str, lengths: LengthConfig) -> list[dict[str, Any]]:
    """The columns of committed rollouts that training needs, and whether a row carries loss."""
    rows: list[dict[str, Any]] = read_table(store, path, columns=COLUMNS).to_pylist()
    masked = lengths.overlong == "mask"
    return [row | {"trainable": _weighed(row) and not (masked and cut(row))} for row in rows]


def cut(row: Mapping[str, Any]) -> bool:
    """Whether a sample ended at the token limit, and not by itself."""
    return bool(row["finish_reason"] == "length")


def useful_groups(rows: Sequence[dict[str, Any]]) -> set[int]:
    """Numbers of the groups in which a row that carries loss has an advantage."""
    groups: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if row["trainable"]:
            groups[row["group"]].append(row["advantages"])
    return {group for group, advantages in groups.items() if has_signal(advantages)}


def samples_of(files: Sequence[Rollouts], kinds: Mapping[str, str]) -> list[Sample]:
    """The samples of a step, in order of job, group and sample; `kinds` maps task ids to kinds."""
    samples: list[Sample] = []
    for file in files:
        useful = useful_groups(file.rows)
        samples += [
            Sample(
                sample_id=row["sample_id"],
                prompt_ids=tuple(row["input_tokens"]),
                output_ids=tuple(row["output_tokens"]),
                behaviour_logprobs=np.asarray(row["output_logprobs"], np.float32),
                advantage=row["advantages"],
                temperature=row["temperature"],
                trainable=row["trainable"],
                kind=kinds[row["task_id"]],
            )
            for row in file.rows
            if row["group"] in useful and _weighed(row)
        ]
    return samples


def _weighed(row: Mapping[str, Any]) -> bool:
    return row["advantages"] is not None and bool(row["output_tokens"])


def record(step: int, files: Sequence[Rollouts], kinds: Mapping[str, str]) -> dict[str, Any]:
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
        "cut": sum(cut(row) for row in rows),
    }


def figures(step: int, files: Sequence[Rollouts], kinds: Mapping[str, str]) -> dict[str, float]:
    """What is reported of the rollouts of a step, over all of them and by kind.

    Means of rewards are over rows with a score, the others over all rows; `off_policy` is the lag
    in versions, `errored_rollouts` and `empty_rollouts` are shares of what was asked for.
    """
    rows = [row for file in files for row in file.rows]
    lags = [step - 1 - row["step"] for row in rows]
    errored = sum(file.errored for file in files)
    found = {
        "off_policy/mean": _mean(lags),
        "off_policy/max": float(max(lags)),
        "errored_rollouts": errored / (len(rows) + errored),
        "empty_rollouts": _mean([not row["output_tokens"] for row in rows]),
    }
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_kind[kinds[row["task_id"]]].append(row)
    for kind, own in [*sorted(by_kind.items()), ("all", rows)]:
        found[f"seq_len/{kind}/mean"] = _mean([len(row["output_tokens"]) for row in own])
        found[f"is_truncated/{kind}/mean"] = _mean([cut(row) for row in own])
        if scored := [row for row in own if row["task_rewards"] is not None]:
            found[f"reward/{kind}/mean"] = _mean([row["rewards"] for row in scored])
            found[f"task_reward/{kind}/mean"] = _mean([row["task_rewards"] for row in scored])
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
