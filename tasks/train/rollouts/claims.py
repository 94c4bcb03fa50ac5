"""What an upload says, held against what was asked for; needs no model.

Invariants: of the columns, all that we know ourselves must be as we know it (prompts, seeds, ids,
parameters); all that the node states must be possible (finite, within bounds, text that the tokens
spell); every row is signed by the node that held the job. A reason is "code: what was found".
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data_contracts import rollouts as contract
from data_contracts.generate import proof_bytes
from data_contracts.ids import canonical_json
from infra.inference.prompts import ChatTokenizer
from tasks.generate.ingest import completion_text, impossible
from tasks.train.rollouts.job import Group, RolloutJob
from tasks.train.rollouts.work import trace
from toploc.transcript import Transcript

REWARD_TOLERANCE = 1e-4
"""A stated reward may differ from ours by float32 arithmetic."""

PROMPT_COLUMNS = ("input_tokens", "prompt", "problem_id", "task_id", "task_type", "target_lengths")


def faults(
    job: RolloutJob,
    rows: Sequence[Mapping[str, Any]],
    node_id: str,
    tokenizer: ChatTokenizer,
    vocabulary: int,
) -> dict[str, str]:
    """Sample id -> why the row cannot be an honest answer; ids that were not asked for under ''.

    The policy's token ids are below `vocabulary`.
    """
    asked = {
        job.sample_id(group.group, at): (group, at)
        for group in job.groups
        for at in range(len(group.seeds))
    }
    ids = [row["sample_id"] for row in rows]
    if sorted(ids) != sorted(asked):
        twice = len(ids) - len(set(ids))
        unknown = sorted(set(ids) - asked.keys())
        return {
            "": f"other_samples: {twice} are there twice, {len(unknown)} were not asked for "
            f"(such as {unknown[:1]!r:.100}); asked for were the {len(asked)} of the job, once each"
        }
    asking = _Asking(job, node_id, tokenizer, vocabulary)
    found = {}
    for row in rows:
        if fault := asking.fault(row, *asked[row["sample_id"]]):
            found[row["sample_id"]] = fault
    return found


class _Asking:
    """What was asked of a node; what all rows of the upload share is worked out once."""

    def __init__(
        self, job: RolloutJob, node_id: str, tokenizer: ChatTokenizer, vocabulary: int
    ) -> None:
        self._job, self._node_id = job, node_id
        self._tokenizer, self._vocabulary = tokenizer, vocabulary
        self._settings = {
            "rollout_step": job.step,
            "model": job.model,
            "sampling": canonical_json(job.sampling.as_dict()),
            "temperature": float(np.float32(job.sampling.temperature)),
        }
        self._texts: dict[tuple[int, ...], str] = {}
        """Texts by group and tokens: short answers repeat."""

    def fault(self, row: Mapping[str, Any], group: Group, at: int) -> str:
        """Why a row is no honest answer, or ''."""
        claim = trace(dict(row))
        problem = (
            self._not_asked(row, group, at)
            or _impossible(row, claim, self._job, self._vocabulary)
            or _reward_out_of_bounds(row)
        )
        if problem:
            return problem
        if row["node_id"] != self._node_id:
            named = row["node_id"][:64]
            return f"other_node: the row names {named!r}, the job was held by {self._node_id}"
        unsigned = Transcript.of_row(claim).faults(row["transcript_hash"], row["signature"])
        if unsigned:
            return unsigned[0]
        if row["completion"] != self._text(group, row["output_tokens"]):
            return "other_completion: the text is not what the tokens spell"
        return ""

    def _text(self, group: Group, tokens: list[int]) -> str:
        if not tokens:
            return ""
        key = (group.group, *tokens)
        if key not in self._texts:
            stop = self._job.sampling.stop
            self._texts[key] = completion_text(self._tokenizer, group.prompt_ids, tokens, stop)
        return self._texts[key]

    def _not_asked(self, row: Mapping[str, Any], group: Group, at: int) -> str:
        """Whether the node answered something else."""
        job = self._job
        prompt = (
            group.prompt_ids, group.prompt, group.problem_id, group.task_id, group.task_type,
            group.target_length,
        )  # fmt: skip
        for name, ours in zip(PROMPT_COLUMNS, prompt, strict=True):
            if row[name] != ours:
                return f"other_prompt: {name} is {row[name]!r:.80}, asked was {ours!r:.80}"
        if row["seed"] != group.seeds[at]:
            return f"other_seed: {row['seed']}, asked was {group.seeds[at]}"
        known = self._settings | {"group": group.group, "sample_index": at}
        for name, value in known.items():
            if row[name] != value:
                return f"other_settings: {name} is {row[name]!r:.80}, asked was {value!r:.80}"
        if row["step"] < job.least_version:
            return (
                f"stale_policy: version {row['step']}, at least {job.least_version} was asked for"
            )
        if row["step"] > job.most_version:
            return f"future_policy: version {row['step']}, at most {job.most_version} was asked for"
        return ""


def _impossible(
    row: Mapping[str, Any], claim: Mapping[str, Any], job: RolloutJob, vocabulary: int
) -> str:
    if row["output_logprobs"] is None:
        return "logprobs_missing: there are none for the output tokens"
    problem = impossible(claim, job.sampling.max_tokens)
    if problem:
        return f"impossible: {problem}"
    if max(row["output_tokens"], default=0) >= vocabulary:
        return f"impossible: token {max(row['output_tokens'])}; the policy has {vocabulary} tokens"
    if not (math.isfinite(row["seconds"]) and row["seconds"] >= 0):
        return f"impossible: {row['seconds']} seconds"
    due = proof_bytes(len(row["output_tokens"]))
    if len(row["proofs"]) != due:
        return f"proof_length: {len(row['proofs'])} bytes; {due} are due"
    return ""


def _reward_out_of_bounds(row: Mapping[str, Any]) -> str:
    stated = {name: row[name] for name in contract.REWARDS if row[name] is not None}
    for name, value in stated.items():
        if not math.isfinite(value):
            return f"reward_not_finite: {name} is {value}"
    if not 0.0 <= stated.get("task_rewards", 0.0) <= 1.0:
        return f"reward_out_of_bounds: task_rewards is {stated['task_rewards']}, allowed is 0 to 1"
    return ""


def forged(row: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Whether a stated reward is another than ours; what is not stated, or not scored, is not."""
    for name in contract.REWARDS:
        stated, real = row[name], ours[name]
        if stated is not None and real is not None and not abs(stated - real) <= REWARD_TOLERANCE:
            return f"forged_rewards: {name} is {stated:.6g}, the answer gives {real:.6g}"
    return ""
