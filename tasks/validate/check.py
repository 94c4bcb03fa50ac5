"""One trace against one prefill: proofs, sampling, log-probabilities, termination.

Invariants: fail closed (no proof, a malformed one, a non-finite figure, anything undecided is never
accepted); every check that fails gives its reason, so that one trace may have several; the verdict
depends on the trace and the model, not on which traces are checked beside it.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from infra.inference.protocol import PROOF_ROWS
from tasks.validate.config import ValidateConfig
from toploc.sampling import SamplingLimits, SamplingRule, examine, judge_sampling
from toploc.verdict import Limits, judge_proofs

TOPK = 128


@dataclass
class Verdict:
    """What is said about one trace."""

    verdict: str
    reasons: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelFacts:
    """What termination depends on."""

    context_length: int
    eos_ids: frozenset[int]
    ended: Callable[[Sequence[int], Sequence[str]], bool]


def before_prefill(trace: Mapping[str, Any], facts: ModelFacts) -> Verdict | None:
    """The verdict of a trace that needs no computation; None if it needs some."""
    prompt, output = len(trace["prompt_ids"]), len(trace["output_ids"])
    if trace["status"] == "prompt_too_long":
        honest = prompt + 1 > facts.context_length
        return Verdict("rejected", ["prompt_too_long" if honest else "false_prompt_too_long"])
    if trace["status"] != "ok":
        return Verdict("rejected", [trace["status"]])
    if not output:
        return Verdict("rejected", ["empty_output"])
    if prompt + output > facts.context_length:
        return Verdict("rejected", ["longer_than_context"])
    if not trace["proofs"]:
        return Verdict("rejected", ["proof_missing"])
    return None


def check_trace(
    trace: Mapping[str, Any],
    hidden: Tensor,
    logits: Tensor,
    facts: ModelFacts,
    config: ValidateConfig,
) -> Verdict:
    """The verdict of a trace.

    Args:
        trace: a row of the traces table.
        hidden: [n_out, hidden size] bfloat16, our last hidden states of the output's rows.
        logits: [n_out, vocabulary] float32 of the same rows.
        facts: context length and end tokens of the model.
        config: the limits.
    """
    limits = Limits(config.exp_mismatches, config.mant_err_mean, config.mant_err_median)
    proofs = judge_proofs(
        hidden, trace["proofs"], limits, topk=TOPK, decode_batching_size=PROOF_ROWS
    )
    sampling = json.loads(trace["sampling"])
    rule = SamplingRule(
        sampling["temperature"], sampling["top_p"], sampling["top_k"], sampling["min_p"]
    )
    tokens = torch.tensor(trace["output_ids"], dtype=torch.int64)
    claims = examine(logits, tokens, trace["seed"], rule)
    allowed = SamplingLimits(mean_margin=config.margin_mean, over_share=config.margin_over_share)
    drawn = judge_sampling(claims.margins, allowed)
    error = logprob_error(claims.logprobs.tolist(), trace["logprobs"])
    reasons = list(proofs.reasons) + list(drawn.reasons)
    if not proofs.accepted and not proofs.reasons:
        reasons.append("proof_refused")
    if not drawn.accepted and not drawn.reasons:
        reasons.append("sampling_refused")
    if not error <= config.logprob_error:
        reasons.append(f"logprobs_differ: {error:.3g} on average")
    ending = false_ending(trace, sampling["max_tokens"], sampling["stop"], facts)
    if ending:
        reasons.append(ending)
    figures = {
        "proofs": proofs.figures,
        "sampling": drawn.figures,
        "logprob_error": error if math.isfinite(error) else None,
    }
    return Verdict("rejected" if reasons else "accepted", reasons, figures)


def false_ending(
    trace: Mapping[str, Any], max_tokens: int, stop: Sequence[str], facts: ModelFacts
) -> str:
    """Why the trace cannot have ended where it did, or ''."""
    ids = trace["output_ids"]
    ends = facts.eos_ids.intersection(ids[:-1])
    if ends or (stop and any(facts.ended(ids[:n], stop) for n in range(1, len(ids)))):
        return "goes_on_after_end"
    ended = facts.ended(ids, stop)
    full = min(max_tokens, facts.context_length - len(trace["prompt_ids"]))
    if trace["finish_reason"] == "stop":
        return "" if ended else "stopped_without_end"
    if trace["finish_reason"] == "length":
        return "" if len(ids) == full and not ended else "stopped_short_of_length"
    return "false_finish_reason"


def logprob_error(ours: Sequence[float], claimed: Sequence[float]) -> float:
    """Mean absolute difference; infinite where there is not one for each token."""
    if len(ours) != len(claimed):
        return math.inf
    return math.fsum(abs(a - b) for a, b in zip(ours, claimed, strict=True)) / len(ours)
