"""A node's side: sample groups from the policy, prove and sign them, write one file.

Invariants: every sample is made by one version of the policy, from its own seed; the file has the
columns of the rollouts contract; rewards are left empty, because a node knows no answers; what the
node answers for is signed with its own key.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_contracts import rollouts as contract
from data_contracts.ids import canonical_json
from data_contracts.text import table_from_rows
from infra.inference.protocol import Completion, Engine, Request
from infra.storage.parquet import parquet_bytes
from tasks.generate.work import ProofSink
from tasks.train.rollouts.job import Group, Payload, RolloutJob
from tasks.train.rollouts.policy import Policies
from toploc.signing import SigningKey
from toploc.transcript import Transcript

FILE = "rollouts.parquet"


class RolloutWork:
    """What answers jobs of the kind `rollouts`."""

    def __init__(self, key: SigningKey, policies: Policies):
        self._key = key
        self._policies = policies

    def __call__(
        self, payload: dict[str, Any], engine_of: Callable[[str], Engine], out: Path
    ) -> dict[str, Any]:
        """Do one job into a file in `out`; returns its rows, output tokens and policy versions."""
        asked = Payload.model_validate(payload)
        job = asked.job
        policy = self._policies.of(job.model, asked.broadcast)
        rows: list[dict[str, Any]] = []
        for first in range(0, len(job.groups), job.batch_groups):
            version, engine = policy.use_newest(job.least_version, job.most_version)
            batch = job.groups[first : first + job.batch_groups]
            rows += sample_groups(job, batch, version, engine, self._key)
        data = parquet_bytes(table_from_rows(rows, contract.SCHEMA))
        (out / FILE).write_bytes(data)
        return {
            "rows": len(rows),
            "tokens": sum(len(row["output_tokens"]) for row in rows),
            "versions": sorted({row["step"] for row in rows}),
        }


def sample_groups(
    job: RolloutJob, groups: list[Group], version: int, engine: Engine, key: SigningKey
) -> list[dict[str, Any]]:
    """Rows of the rollouts table for some groups of a job, decoded together."""
    places = [(group, sample) for group in groups for sample in range(len(group.seeds))]
    requests = [
        Request(job.sample_id(group.group, at), tuple(group.prompt_ids), group.seeds[at])
        for group, at in places
    ]
    sink = ProofSink()
    completions = engine.generate(requests, job.sampling.params(), sink)
    sampling = canonical_json(job.sampling.as_dict())
    return [
        signed(
            _row(job, group, at, completion, version, engine, sampling)
            | {"proofs": sink.of(completion.trace_id)},
            key,
        )
        for (group, at), completion in zip(places, completions, strict=True)
    ]


def _row(
    job: RolloutJob,
    group: Group,
    at: int,
    completion: Completion,
    version: int,
    engine: Engine,
    sampling: str,
) -> dict[str, Any]:
    return {
        "input_tokens": group.prompt_ids,
        "output_tokens": completion.output_ids,
        "input_logprobs": None,
        "output_logprobs": completion.logprobs,
        "prompt": group.prompt,
        "problem_id": group.problem_id,
        "completion": completion.text,
        **dict.fromkeys(contract.REWARDS),
        "step": version,
        "target_lengths": group.target_length,
        "task_type": group.task_type,
        "seed": group.seeds[at],
        "temperature": job.sampling.temperature,
        "sample_id": completion.trace_id,
        "task_id": group.task_id,
        "rollout_step": job.step,
        "group": group.group,
        "sample_index": at,
        "model": job.model,
        "model_revision": engine.revision,
        "sampling": sampling,
        "status": completion.status,
        "finish_reason": completion.finish_reason,
        "error": completion.error,
        "engine": engine.environment,
        "seconds": completion.seconds,
    }


def transcript(row: dict[str, Any]) -> Transcript:
    """What the node of a row answers for."""
    return Transcript.of_row(trace(row))


def trace(row: dict[str, Any]) -> dict[str, Any]:
    """A row under the names that the traces table has for the same things."""
    return row | {
        "group_id": None,
        "stage_proofs": None,
        "trace_id": row["sample_id"],
        "prompt_ids": row["input_tokens"],
        "output_ids": row["output_tokens"],
        "logprobs": row["output_logprobs"],
    }


def signed(row: dict[str, Any], key: SigningKey) -> dict[str, Any]:
    """The row with its node, transcript hash and signature."""
    row = row | {"node_id": key.node_id}
    transcript_hash, signature = transcript(row).sign(key)
    return row | {"transcript_hash": transcript_hash, "signature": signature}
