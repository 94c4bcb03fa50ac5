"""Rewards and advantages of rollouts, computed on our side from the stored text.

Invariants: a sample that cannot be scored has null rewards and is in no statistic of its group,
which is not the same as a reward of 0; advantages are taken over the samples given here, group by
group, so rows that were set aside before are in no statistic either; the same answer to the same
task has the same score.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.train.objective.advantages import group_advantages
from tasks.train.objective.config import LengthConfig, ObjectiveConfig
from tasks.train.objective.lengths import overlong_penalty, shaped_reward
from tasks.train.rollouts.job import NO_TARGET
from verifiers import Score, score_many


def rewarded(
    rows: Sequence[Mapping[str, Any]],
    answers: Mapping[str, str],
    lengths: LengthConfig,
    objective: ObjectiveConfig,
    max_tokens: int,
) -> list[dict[str, float | None]]:
    """The four reward columns of each row.

    `answers` maps task ids to verification_info. A task without one is a KeyError: we plan the
    prompts. `batch_std` takes the rows given here for the batch.
    """
    # Short answers repeat within a group: one judgement for each.
    questions = {
        (row["task_id"], row["completion"]): {
            "task_type": row["task_type"],
            "completion": row["completion"],
            "verification_info": answers[row["task_id"]],
        }
        for row in rows
    }
    scores = dict(zip(questions, score_many(questions.values(), workers=1), strict=True))
    found = [
        _rewards(row, scores[row["task_id"], row["completion"]], lengths, max_tokens)
        for row in rows
    ]
    groups: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row["group"], []).append(place)
    values = [[found[place]["rewards"] for place in places] for places in groups.values()]
    advantages = group_advantages(values, objective.advantage, objective.trained_samples)
    for places, group in zip(groups.values(), advantages, strict=True):
        for place, value in zip(places, group, strict=True):
            found[place]["advantages"] = value
    return found


def _rewards(
    row: Mapping[str, Any], score: Score, lengths: LengthConfig, max_tokens: int
) -> dict[str, float | None]:
    if score.score is None:
        return {"advantages": None, "rewards": None, "task_rewards": None, "length_penalties": None}
    tokens = len(row["output_tokens"])
    target = None if row["target_lengths"] == NO_TARGET else row["target_lengths"]
    reward, term = shaped_reward(score.score, tokens, target, lengths)
    if lengths.overlong == "penalty":
        reward += overlong_penalty(tokens, max_tokens, lengths.overlong_cache)
    return {
        "advantages": None, "rewards": reward, "task_rewards": score.score,
        "length_penalties": term,
    }  # fmt: skip
