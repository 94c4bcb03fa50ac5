"""For every rule of every contract, a change of good rows that this rule alone catches."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import samples

from data_contracts import (
    annotate,
    collect,
    generate,
    ids,
    plan,
    publish,
    quarantine,
    rollouts,
    validate,
    verify,
)
from data_contracts.report import Report
from data_contracts.rules import Contract
from data_contracts.text import table_from_rows

Rows = list[dict[str, Any]]
Change = Callable[[Rows], None]


@dataclass(frozen=True)
class Kind:
    """One table kind: how good rows are made and checked, and what breaks each rule."""

    contract: Contract
    row: Callable[[int], dict[str, Any]]
    check: Callable[[pa.Table], Report]
    changes: dict[str, Change]
    order: tuple[str, ...] = ()

    def rows(self, number: int = 8) -> Rows:
        made = [self.row(i) for i in range(number)]
        return sorted(made, key=lambda row: [row[name] for name in self.order])

    def table(self, rows: Sequence[dict[str, Any]]) -> pa.Table:
        return table_from_rows(rows, self.contract.schema)


def put(**values: Any) -> Change:
    """Set values in row 2."""
    return lambda rows: rows[2].update(values)


def repeat(**values: Any) -> Change:
    """Append a copy of the last row."""
    return lambda rows: rows.append({**rows[-1], **values})


def put_task(**values: Any) -> Change:
    """Set values in row 2 and make its task id anew."""

    def change(rows: Rows) -> None:
        row = rows[2]
        row.update(values)
        info = json.loads(row["verification_info"])
        row["task_id"] = ids.task_id(row["task_type"], row["prompt"], info)

    return change


def put_trace_id(value: str) -> Change:
    return put(trace_id=value, seed=ids.trace_seed(value))


def long_output(rows: Rows) -> None:
    rows[2] = samples.trace(2, n_output=65)


def drop_logprob(rows: Rows) -> None:
    rows[2]["logprobs"] = rows[2]["logprobs"][1:]


def most_fail(rows: Rows) -> None:
    for row in rows[:5]:
        row.update(status="engine_error", finish_reason="error", error="out of memory")


def most_unscored(rows: Rows) -> None:
    for row in rows[:5]:
        row.update(status="unverifiable", score=None)


def swap(rows: Rows) -> None:
    rows[0], rows[1] = rows[1], rows[0]


def swap_position(rows: Rows) -> None:
    rows[2]["position"] = 100


TASKS = Kind(
    collect.CONTRACT,
    samples.task,
    collect.validate,
    {
        "task_id_unique": repeat(problem_id="other"),
        "task_id_recomputes": put(task_id="0" * 32),
        "task_type_form": put_task(task_type="bad type"),
        "problem_id_form": put(problem_id=" "),
        "source_form": put(source=""),
        "prompt_ok": put_task(prompt=[{"role": "user", "content": " "}]),
        "verification_info_json": put_task(verification_info="[1]"),
        "metadata_json": put(metadata="{'a': 1}"),
        "gold_not_blank": put(gold=""),
        "binary_consistent": put(binary=False),
        "source_problem_id_unique": put(problem_id="sum_3"),
    },
)

PLAN = Kind(
    plan.CONTRACT,
    samples.plan,
    plan.validate,
    {
        "trace_id_unique": lambda rows: rows[2].update(
            trace_id=rows[3]["trace_id"], seed=rows[3]["seed"]
        ),
        "task_id_model_sample_index_unique": lambda rows: rows[2].update(
            task_id=rows[3]["task_id"]
        ),
        "trace_id_form": put_trace_id("a" * 32 + "\n"),
        "task_id_form": put(task_id="x"),
        "shard_id_form": lambda rows: [row.update(shard_id="S") for row in rows] and None,
        "model_form": lambda rows: [row.update(model="") for row in rows] and None,
        "sample_index_range": put(sample_index=-1),
        "seed_recomputes": put(seed=5),
        "positions_dense": lambda rows: rows[-1].update(position=100),
        "batches_in_order": lambda rows: rows[-1].update(batch=2),
        "shard_one_model": put(model="other"),
    },
)

TRACES = Kind(
    generate.CONTRACT,
    samples.trace,
    generate.validate,
    {
        "trace_id_unique": repeat(),
        "model_single": put(model="other"),
        "model_revision_single": put(model_revision="rev-2"),
        "trace_id_form": put_trace_id("A" * 32),
        "task_id_form": put(task_id="a" * 32 + "\n"),
        "sample_index_range": put(sample_index=-1),
        "status_known": put(status="odd", finish_reason="error", error="odd"),
        "finish_reason_known": put(finish_reason="eos"),
        "engine_form": put(engine=""),
        "seed_recomputes": put(seed=5),
        "sampling_complete": put(sampling='{"temperature": NaN}'),
        "prompt_not_empty": put(prompt_ids=[]),
        "tokens_not_negative": put(prompt_ids=[1, -1]),
        "logprob_per_token": drop_logprob,
        "logprobs_ok": put(logprobs=[float("nan")] * 40),
        "within_max_tokens": long_output,
        "outcome_agrees": put(error="but it is ok"),
        "seconds_ok": put(seconds=float("nan")),
        "proofs_complete": put(proofs=b""),
        "ok_share": most_fail,
    },
)

VERDICTS = Kind(
    validate.CONTRACT,
    samples.verdict,
    validate.validate,
    {
        "trace_id_unique": repeat(),
        "shard_id_single": put(shard_id="0" * 32),
        "trace_id_form": put(trace_id="x"),
        "shard_id_form": lambda rows: [row.update(shard_id="x") for row in rows] and None,
        "verdict_known": put(verdict="fine", reasons=["why"]),
        "reasons_agree": put(verdict="rejected", reasons=[]),
        "figures_json": put(figures="3"),
        "validator_form": put(validator=""),
    },
)

REWARDS = Kind(
    verify.CONTRACT,
    samples.reward,
    verify.validate,
    {
        "trace_id_unique": repeat(),
        "model_single": put(model="other"),
        "trace_id_form": put(trace_id="x"),
        "task_id_form": put(task_id="x"),
        "status_known": put(status="fine"),
        "score_agrees": put(score=None),
        "score_in_unit": put(score=float("nan")),
        "binary_score": put(score=0.5),
        "fault_scores_zero": put(status="timeout", score=1.0),
        "seconds_ok": put(seconds=-1.0),
        "verifier_form": put(verifier=""),
        "scored_share": most_unscored,
    },
)

DIFFICULTY = Kind(
    annotate.CONTRACT,
    samples.difficulty,
    annotate.validate,
    {
        "task_id_model_unique": repeat(),
        "task_id_form": put(task_id="x"),
        "model_form": put(model=" "),
        "n_requested_range": put(
            n_requested=0, n_scored=0, k_passed=0, **dict.fromkeys(annotate.FIGURES)
        ),
        "counts_ordered": put(n_scored=1, k_passed=2),
        "figures_together": put(avg_reward=None),
        "figures_in_unit": put(avg_reward=float("nan")),
        "pass_rate_is_share": put(pass_rate=0.6),
        "interval_holds_rate": put(ci_high=0.1),
    },
)

ROLLOUTS = Kind(
    rollouts.CONTRACT,
    samples.rollout,
    rollouts.validate,
    {
        "sample_id_unique": repeat(),
        "sample_id_form": put(sample_id="x"),
        "task_id_form": put(task_id="x"),
        "step_range": put(step=-1),
        "target_lengths_range": put(target_lengths=-2),
        "status_known": put(status="odd"),
        "finish_reason_known": put(finish_reason="eos"),
        "logprob_per_token": put(output_logprobs=None),
        "logprobs_ok": put(output_logprobs=[0.5] * 40),
        "proofs_complete": put(proofs=b""),
        "rewards_finite": put(advantages=float("-inf")),
        "not_from_the_future": put(step=6),
    },
)

QUARANTINE = Kind(
    quarantine.CONTRACT,
    samples.quarantined,
    quarantine.validate,
    {
        "stage_form": put(stage="No Stage"),
        "reason_form": put(reason=""),
        "origin_form": put(origin=""),
        "row_json": put(row="{"),
    },
)

_ORDER = ("task_type", "task_id")

FULL = Kind(
    publish.contract("full"),
    samples.full,
    lambda table: publish.validate(table, "full"),
    {
        "problem_id_form": put(problem_id=""),
        "reward_status_known": put(reward_status="fine"),
        "reward_agrees": put(reward=None),
        "task_id_recomputes": put(verification_info="{}"),
        "task_id_model_sample_index_unique": repeat(),
        "finish_reason_known": put(finish_reason="error"),
        "in_order": swap,
        "binary_reward": put(reward=0.5),
    },
    _ORDER,
)

SFT_VERIFIED = Kind(
    publish.contract("sft_verified"),
    samples.sft,
    lambda table: publish.validate(table, "sft_verified"),
    {
        "task_id_form": lambda rows: rows[-1].update(task_id="x"),
        "problem_id_form": put(problem_id=""),
        "reward_status_known": put(reward_status="fine"),
        "reward_agrees": put(reward=float("nan")),
        "in_order": swap,
        "answer_last": put(completion="another"),
        "verified": put(reward=0.7),
        "scored": put(reward=None, reward_status="unverifiable"),
    },
    _ORDER,
)

SFT_UNVERIFIED = Kind(
    publish.contract("sft_unverified"),
    samples.sft,
    lambda table: publish.validate(table, "sft_unverified"),
    {
        name: change
        for name, change in SFT_VERIFIED.changes.items()
        if name not in ("verified", "scored")
    },
    _ORDER,
)

RL = Kind(
    publish.contract("rl", ("small",)),
    samples.rl,
    lambda table: publish.validate(table, "rl", ("small",)),
    {
        "task_id_unique": repeat(),
        "problem_id_form": put(problem_id=""),
        "task_id_recomputes": put(prompt=[{"role": "user", "content": "another"}]),
        "in_order": swap,
        "info_not_empty": lambda rows: empty_info(rows),
        "difficulty_small": put(pass_rate_small=None),
    },
    _ORDER,
)


def empty_info(rows: Rows) -> None:
    put_task(verification_info="{}")(rows)
    rows.sort(key=lambda row: (row["task_type"], row["task_id"]))


KINDS = {
    "tasks": TASKS,
    "plan": PLAN,
    "traces": TRACES,
    "verdicts": VERDICTS,
    "rewards": REWARDS,
    "difficulty": DIFFICULTY,
    "rollouts": ROLLOUTS,
    "quarantine": QUARANTINE,
    "full": FULL,
    "sft_verified": SFT_VERIFIED,
    "sft_unverified": SFT_UNVERIFIED,
    "rl": RL,
}
