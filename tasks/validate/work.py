"""The validator's side that needs the model: verdicts for the traces of one shard.

Runs on a trusted node. A fault of ours on a trace is the verdict `crashed`, which is never
published and is tried again; it is not held against the node that made the trace.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import torch

from infra.inference.errors import BadItem
from infra.inference.protocol import Engine
from infra.storage import Store
from infra.storage.shards import read_table
from tasks.validate.binding import COLUMNS, bound
from tasks.validate.check import (
    ModelFacts,
    Verdict,
    before_prefill,
    check_traces,
    claims_of,
    false_ending,
)
from tasks.validate.config import ValidateConfig


def validate_shard(payload: dict[str, Any], engine_of: Callable[[str], Engine]) -> dict[str, Any]:
    """Verdict rows of a committed shard of traces, in its order."""
    engine = engine_of(payload["model"])
    config = ValidateConfig(**payload["config"])
    traces = read_table(Store(payload["root"]), payload["traces"], columns=COLUMNS).to_pylist()
    verdicts = bound(traces, judge(traces, engine, config, audited=payload["audited"]))
    return {
        "verdicts": [
            {
                "trace_id": trace["trace_id"],
                "verdict": verdicts[trace["trace_id"]].verdict,
                "reasons": verdicts[trace["trace_id"]].reasons,
                "figures": json.dumps(verdicts[trace["trace_id"]].figures, sort_keys=True),
            }
            for trace in traces
        ]
    }


def judge(
    traces: Sequence[dict[str, Any]],
    engine: Engine,
    config: ValidateConfig,
    *,
    audited: bool = True,
    calibration: str = "",
) -> dict[str, Verdict]:
    """Trace id -> verdict. Not audited: only what needs no computation is looked at.

    `calibration` names another revision whose profile has the limits, such as that of the model
    which this one was trained from.
    """
    facts = ModelFacts.of(engine, config, calibration)
    verdicts: dict[str, Verdict] = {}
    waiting: list[dict[str, Any]] = []
    for trace in traces:
        early = before_prefill(trace, facts)
        if early is None and trace["model_revision"] != engine.revision:
            early = Verdict("rejected", ["other_model_revision"])
        if early is None and not audited:
            early = unaudited(trace, facts)
        if early is None:
            waiting.append(trace)
        else:
            verdicts[trace["trace_id"]] = early
    waiting.sort(key=lambda trace: len(trace["prompt_ids"]) + len(trace["output_ids"]))
    for first in range(0, len(waiting), config.batch_size):
        group = waiting[first : first + config.batch_size]
        verdicts |= _judge_group(group, engine, facts, config)
    return verdicts


def unaudited(trace: dict[str, Any], facts: ModelFacts) -> Verdict | None:
    """The verdict of a trace whose shard was not chosen; None: look at it all the same."""
    sampling = json.loads(trace["sampling"])
    try:
        ending = false_ending(trace, sampling["max_tokens"], sampling["stop"], facts)
    except Exception:
        return None  # tokens that cannot be read are for the whole check to name
    return Verdict("rejected", [ending]) if ending else Verdict("accepted_unaudited")


def _judge_group(
    group: Sequence[dict[str, Any]], engine: Engine, facts: ModelFacts, config: ValidateConfig
) -> dict[str, Verdict]:
    try:
        with torch.inference_mode():
            computed = engine.prefill([(t["prompt_ids"], t["output_ids"]) for t in group])
            claims = claims_of(group, [logits for _, logits in computed])
            verdicts = check_traces(
                group, [hidden for hidden, _ in computed], claims, facts, config
            )
            return {
                trace["trace_id"]: verdict for trace, verdict in zip(group, verdicts, strict=True)
            }
    except Exception as error:
        # One hostile trace must not take the others with it: each is checked by itself.
        if len(group) > 1:
            return {
                trace_id: verdict
                for trace in group
                for trace_id, verdict in _judge_group([trace], engine, facts, config).items()
            }
        if isinstance(error, BadItem):
            return {group[0]["trace_id"]: Verdict("rejected", ["bad_tokens"])}
        reason = f"validator:{type(error).__name__}"
        figures = {"error": str(error)[:500]}
        return {group[0]["trace_id"]: Verdict("crashed", [reason], figures)}
