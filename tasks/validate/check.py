"""Traces against one prefill: proofs, sampling, log-probabilities, termination.

The limits are those of the model's calibration profile; a model without one is judged by the fixed
ones of the config.

Invariants: fail closed (no proof, a malformed one, a non-finite figure, anything undecided is never
accepted); every check that fails gives its reason, so that one trace may have several; the verdict
depends on the trace and the model, not on which traces are checked beside it.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from data_contracts.errors import BadValue
from data_contracts.ids import normal_sampling
from infra.inference.protocol import PROOF_ROWS, Engine
from infra.models.profiles import find_profile
from tasks.validate.config import ValidateConfig
from toploc.errors import InvalidSettings
from toploc.misplaced import permuted
from toploc.profile import Profile
from toploc.sampling import Claims, SamplingLimits, SamplingRule, examine_texts, judge_sampling
from toploc.verdict import (
    UNMEASURED,
    Examination,
    Limits,
    ProofVerdict,
    examine_all,
    join,
    judge_examined,
    refuse,
)

TOPK = 128

RATE = "refusal_rate"
"""Figure of a trace that limits alone refused: the share of honest traces that they refuse too."""


@dataclass
class Verdict:
    """What is said about one trace."""

    verdict: str
    reasons: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelFacts:
    """What a verdict depends on besides trace and prefill."""

    context_length: int
    eos_ids: frozenset[int]
    ended: Callable[[Sequence[int], Sequence[str]], bool]
    environment: str
    """What the prefill runs on; see `infra.inference.environment`."""
    profile: Profile | None
    """The calibration that has the limits; None: the fixed ones of the config."""

    @classmethod
    def of(cls, engine: Engine, config: ValidateConfig, calibration: str = "") -> "ModelFacts":
        """Those of a loaded model; it is judged by its own profile unless another one is named.

        Raises ProfileUnreadable, which stops the judging of this model and of no other.
        """
        return cls(
            engine.context_length,
            engine.eos_ids,
            engine.ended,
            engine.environment,
            find_profile(calibration or engine.revision) if config.calibrated else None,
        )


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
    if not _can_be_sampled(trace["sampling"]):
        return Verdict("rejected", ["bad_sampling"])
    return None


def _can_be_sampled(sampling: str) -> bool:
    """Whether sampling parameters that came with a trace are such that anybody can sample by."""
    given = json.loads(sampling)
    try:
        SamplingRule(given["temperature"], given["top_p"], given["top_k"], given["min_p"])
        return bool(given == normal_sampling(given))
    except (InvalidSettings, BadValue, TypeError):
        return False


def claims_of(traces: Sequence[Mapping[str, Any]], logits: Sequence[Tensor]) -> list[Claims]:
    """What our logits, [n_out, vocabulary] float32 of each trace, say of its tokens."""
    by_rule: dict[SamplingRule, list[int]] = {}
    for place, trace in enumerate(traces):
        given = json.loads(trace["sampling"])
        rule = SamplingRule(given["temperature"], given["top_p"], given["top_k"], given["min_p"])
        by_rule.setdefault(rule, []).append(place)
    found: dict[int, Claims] = {}
    for rule, places in by_rule.items():
        texts = [
            (
                logits[place],
                torch.tensor(traces[place]["output_ids"], dtype=torch.int64),
                traces[place]["seed"],
            )
            for place in places
        ]
        found |= zip(places, examine_texts(texts, rule), strict=True)
    return [found[place] for place in range(len(traces))]


def check_traces(
    traces: Sequence[Mapping[str, Any]],
    hidden: Sequence[Tensor],
    claims: Sequence[Claims],
    facts: ModelFacts,
    config: ValidateConfig,
) -> list[Verdict]:
    """The verdicts of traces.

    Args:
        traces: rows of the traces table.
        hidden: [n_out, hidden size] bfloat16 of each, our last hidden states of the output's rows.
        claims: what our logits of the same rows say of its tokens.
        facts: of the model.
        config: the limits.
    """
    # Samples of a prompt are often the same, and then have the same states.
    texts = {
        (id(own), trace["proofs"]): (own, trace["proofs"])
        for own, trace in zip(hidden, traces, strict=True)
    }
    examined = dict(zip(texts, examine_all([*texts.values()], TOPK, PROOF_ROWS), strict=True))
    proofs = [examined[id(own), trace["proofs"]] for own, trace in zip(hidden, traces, strict=True)]
    judged = _judged(traces, proofs, claims, facts, config)
    return [
        _verdict(trace, own, states, found, facts)
        for trace, own, states, found in zip(traces, judged, hidden, proofs, strict=True)
    ]


def _judged(
    traces: Sequence[Mapping[str, Any]],
    proofs: Sequence[Examination],
    claims: Sequence[Claims],
    facts: ModelFacts,
    config: ValidateConfig,
) -> list[ProofVerdict]:
    """What proofs and tokens say of each trace."""
    lacking = [
        f"logprobs_missing: {said} for {tokens} tokens; one each is due" if said != tokens else ""
        for said, tokens in ((len(t["logprobs"]), len(t["output_ids"])) for t in traces)
    ]
    whole = [
        (found, own, trace, (trace["engine"], facts.environment))
        for trace, found, own, lack in zip(traces, proofs, claims, lacking, strict=True)
        if not lack
    ]
    if facts.profile is None:
        judged = [
            join(
                judge_examined(found, fixed_limits(config)),
                tokens_by_fixed_limits(own, trace, config, sides),
            )
            for found, own, trace, sides in whole
        ]
    else:
        judged = facts.profile.judge_all(
            [
                (found, own, torch.tensor(trace["logprobs"]), sides)
                for found, own, trace, sides in whole
            ]
        )
    rest = iter(judged)
    return [refuse(lack) if lack else next(rest) for lack in lacking]


def _verdict(
    trace: Mapping[str, Any],
    found: ProofVerdict,
    hidden: Tensor,
    proofs: Examination,
    facts: ModelFacts,
) -> Verdict:
    """What was found of a trace, with where a refused proof belongs and how the text ends."""
    sampling = json.loads(trace["sampling"])
    reasons = list(found.reasons)
    if not found.accepted and not reasons:
        reasons.append("proof_refused")
    figures = found.figures | {"limits": "fixed" if facts.profile is None else "calibrated"}
    if not found.accepted and proofs.comparison is not None:
        reasons += permuted(hidden, trace["proofs"], TOPK, PROOF_ROWS)
    ending = false_ending(trace, sampling["max_tokens"], sampling["stop"], facts)
    if ending:
        reasons.append(ending)
    elif found.soft:
        figures["soft"] = True
    elif found.rate:
        figures[RATE] = found.rate
    return Verdict("rejected" if reasons else "accepted", reasons, figures)


def fixed_limits(config: ValidateConfig) -> Limits:
    """Limits of proofs for models without a profile."""
    return Limits(config.exp_mismatches, config.mant_err_mean, config.mant_err_median)


def tokens_by_fixed_limits(
    claims: Claims, trace: Mapping[str, Any], config: ValidateConfig, environments: Iterable[str]
) -> ProofVerdict:
    """The verdict of the tokens alone, for models without a profile.

    The limits are for float32: soft where one side, the prover's or the verifier's, is not.
    """
    allowed = SamplingLimits(mean_margin=config.margin_mean, over_share=config.margin_over_share)
    drawn = judge_sampling(claims.margins, allowed)
    error = logprob_error(claims.logprobs.tolist(), trace["logprobs"])
    reasons = list(drawn.reasons)
    if not error <= config.logprob_error:
        reasons.append(f"logprobs_differ: {error:.3g} on average")
    if not float(claims.margins[-1]) <= allowed.clip:
        # The last token decides that the text ends there: no share of a long text excuses it.
        reasons.append(f"unlikely_end: the last token is {float(claims.margins[-1]):.3g} off")
    exact = all("|float32|" in environment for environment in environments)
    figures = dict(drawn.figures)
    if math.isfinite(error):
        figures["logprob_error"] = error
    return ProofVerdict(
        not reasons,
        tuple(reasons),
        figures,
        soft=bool(reasons) and not exact,
        rate=UNMEASURED if reasons and exact else 0.0,
    )


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
