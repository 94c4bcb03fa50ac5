"""What a run would do, computed from its config before anything is started or written.

The tasks are collected in memory, so their number is exact; the annotators' shards are those of the
plan; the teacher's part is an upper bound, because its tasks follow from the difficulty. Output
tokens are the limit of the sampling settings, not a forecast.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from flows.config import RunConfig
from infra.inference.prompts import ChatTokenizer
from infra.models.registry import materialise
from tasks.collect.collect import collect_rows
from tasks.generate.config import ModelUse
from tasks.generate.plan import PlanTask, spread

BYTES_PER_OUTPUT_TOKEN = 4 + 4 + 258 / 32 + 4
"""Token id, log-probability, share of a proof, and the text, before compression."""

BYTES_PER_PROMPT_TOKEN = 4
PUBLISHED_COPIES = 2
"""The text of a trace is published in `full`, and the teacher's also in the sft splits."""


@dataclass(frozen=True)
class ModelPlan:
    """The work of one model."""

    phase: str
    model: str
    tasks: int
    traces: int
    shards: int
    prompt_tokens: int
    output_tokens_at_most: int
    disk_bytes_at_most: int


@dataclass(frozen=True)
class Estimate:
    """The whole run."""

    tasks: int
    quarantined: dict[str, int]
    tasks_by_type: dict[str, int]
    models: tuple[ModelPlan, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def estimate(config: RunConfig) -> Estimate:
    """Collect in memory and count."""
    found = collect_rows(config.collect)
    models = [
        _model_plan(phase, use, found.tasks)
        for phase in ("annotators", "teacher")
        for use in config.uses(phase)
    ]
    return Estimate(
        tasks=len(found.tasks),
        quarantined=dict(sorted(Counter(bad.reason for bad in found.bad).items())),
        tasks_by_type=dict(sorted(Counter(task["task_type"] for task in found.tasks).items())),
        models=tuple(models),
    )


def _model_plan(phase: str, use: ModelUse, tasks: list[dict[str, Any]]) -> ModelPlan:
    chosen = {
        task.task_id
        for task in spread(
            [PlanTask(task["task_id"], task["task_type"], 0) for task in tasks], use.max_tasks
        )
    }
    tokenizer = ChatTokenizer(materialise(use.model), use.model)
    prompts = [
        len(tokenizer.render(task["prompt"])[0]) for task in tasks if task["task_id"] in chosen
    ]
    traces = len(prompts) * use.samples
    outputs = traces * use.sampling.max_tokens
    prompt_tokens = sum(prompts) * use.samples
    return ModelPlan(
        phase=phase,
        model=use.model,
        tasks=len(prompts),
        traces=traces,
        shards=-(-traces // (use.batch_size * use.batches_per_shard)),
        prompt_tokens=prompt_tokens,
        output_tokens_at_most=outputs,
        disk_bytes_at_most=int(
            prompt_tokens * BYTES_PER_PROMPT_TOKEN
            + outputs * (BYTES_PER_OUTPUT_TOKEN + 4 * PUBLISHED_COPIES)
        ),
    )
