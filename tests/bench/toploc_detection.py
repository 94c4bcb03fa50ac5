"""How often a cheat is caught, attack by attack, at limits that refuse no honest trace.

Ours is the whole decision with the model's committed calibration profile: proofs, sampling,
log-probabilities, ending. The peers are the limits of the PyPI package's authors, 38/10/8 (paper)
and 60/40/40 (their validator), on the same proofs of the same traces; they ask for no sampling
proof, so an honest prefill over other tokens passes them. Calibration used other prompts and seeds.

Attacked are traces of SmolLM2-135M-Instruct of up to 256 tokens, decoded once. Other provers read
them by a forced pass (see `detection_provers`); sampling attacks draw from the honest logits place
by place. An attacker is taken to be consistent: it claims the log-probabilities that its tokens
have under the sampling that it claims. A trace whose tokens other sampling did not change is an
honest one and counted apart. Rates are also given for the beginnings of the traces.
Honest traces beside those: SmolLM2's of up to 64 tokens and the nano models' of up to 96, decoded
in batches of 1, 8 and 32, and read by provers of other kernels, prefills and dtypes.

    python -m tests.bench.toploc_detection [--traces 48] [--short 420] [--only honest|attacks]

Two JSON lines per attack, `detect/<attack>`; for `detect/honest` the rates are false positives.
`traces_for_0.99` and `tokens_for_0.99` say how many of one node's it takes until one is refused
with that chance. Decodes and forced passes are kept in `.bench/`; without them it takes hours of
one core.
"""

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from infra.inference import load_engine
from infra.inference.transformers_engine import TransformersEngine
from infra.models.profiles import find_profile
from tasks.validate.check import ModelFacts, check_traces, claims_of
from tasks.validate.config import ValidateConfig
from tests.bench.detection_attacks import attacks
from tests.bench.detection_provers import PROVERS, replays
from tests.bench.detection_traces import SMOLLM2, rule_of, short_traces, smollm2_traces
from toploc.calibration import lower_bound, upper_bound
from toploc.decision import Evidence, beyond_all, evidence
from toploc.profile import Profile
from toploc.sampling import Claims, examine
from toploc.verdict import examine_proofs
from toploc.verify import VerificationResult

PEERS = {"toploc 38/10/8": (38, 10.0, 8.0), "toploc 60/40/40": (60, 40.0, 40.0)}
LENGTHS = (32, 64, 128, 256)
HONEST = (SMOLLM2, "tracemill/nano-s", "tracemill/nano-m", "tracemill/nano-l")
SAMPLED = ("temperature", "top_p", "greedy")
"""Attacks that may give the very tokens of honest sampling."""

LONG = "long"
"""Key of SmolLM2's long traces in the honest tally; the others are there by model."""


@dataclass
class Tally:
    """Refusals of one attack by number of tokens, of honest traces by model."""

    traces: dict[int | str, int] = field(default_factory=lambda: defaultdict(int))
    unchanged: dict[int | str, int] = field(default_factory=lambda: defaultdict(int))
    """Whose tokens came out as honest sampling gives them: there is nothing to find."""
    refused: dict[tuple[str, int | str], int] = field(default_factory=lambda: defaultdict(int))

    tokens: int = 0
    """Of the whole traces."""

    def add(self, part: int | str, refusals: dict[str, bool]) -> None:
        self.traces[part] += 1
        for name, refused in refusals.items():
            self.refused[name, part] += refused

    def rate(self, name: str, length: int) -> float:
        return self.refused[name, length] / max(self.traces[length], 1)


@dataclass
class Case:
    """A trace as uploaded, and what can be said of it."""

    engine: str
    faults: tuple[str, ...]
    evidence: Evidence | None
    results: list[VerificationResult]

    def refusals(self, profile: Profile, end: int | None = None) -> dict[str, bool]:
        """Who refuses it, or its first `end` tokens, an edge of chunks."""
        if self.evidence is None:
            return {"ours": True} | dict.fromkeys(PEERS, True)
        whole = self.evidence
        end = len(whole.distances) if end is None else end
        chunks, tokens = slice(-(-end // 32)), slice(end)
        part = Evidence(
            whole.rows[chunks],
            whole.errors[chunks],
            whole.missing[chunks],
            whole.distances[tokens],
            whole.logprob_errors[tokens],
        )
        refused = {"ours": bool(self.faults or beyond_all(part, profile.of(self.engine)))}
        for name, (mismatches, mean, median) in PEERS.items():
            refused[name] = any(
                one.exp_mismatches > mismatches
                or one.mant_err_mean > mean
                or one.mant_err_median > median
                for one in self.results[chunks]
            )
        return refused


def case(
    row: dict[str, Any], hidden: Tensor, logits: Tensor, known: dict[tuple[int, ...], Claims]
) -> Case:
    """`known` holds what these logits have said of the same tokens before."""
    proofs = examine_proofs(hidden, row["proofs"])
    if proofs.comparison is None:
        return Case(row["engine"], proofs.faults, None, [])
    key = tuple(row["output_ids"])
    if key not in known:
        tokens = torch.tensor(row["output_ids"])
        known[key] = examine(logits, tokens, row["seed"], rule_of(row["sampling"]))
    claims = known[key]
    claimed = row["logprobs"]
    own = claims.logprobs if claimed is None else torch.tensor(claimed)
    return Case(
        row["engine"], proofs.faults, evidence(proofs, claims, own), proofs.comparison.results()
    )


def smollm2_rows(
    engine: TransformersEngine, count: int
) -> tuple[list[dict[str, Any]], dict[str, dict[str, dict[str, Any]]]]:
    """The base traces, and by prover and trace id what the other provers made of them."""
    traces = smollm2_traces(engine, count)
    made = {}
    for prover in PROVERS:
        print(f"prover {prover.name}", file=sys.stderr, flush=True)
        rows = replays(prover, SMOLLM2, traces)
        made[prover.name] = {row["trace_id"]: row for row in rows}
    return traces, made


def judged(
    engine: TransformersEngine, traces: Sequence[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], Tensor, Tensor]]:
    """Traces with the reference's hidden states and logits."""
    for number, trace in enumerate(traces):
        if number % 16 == 0:
            print(f"judging {number} of {len(traces)}", file=sys.stderr, flush=True)
        with torch.inference_mode():
            ((hidden, logits),) = engine.prefill([(trace["prompt_ids"], trace["output_ids"])])
        yield trace, hidden, logits


def smollm2(count: int, tallies: dict[str, Tally], attacked: bool) -> None:
    """Long traces of SmolLM2, honest and attacked."""
    engine = load_engine(SMOLLM2)
    config = ValidateConfig()
    facts = ModelFacts.of(engine, config)
    profile = facts.profile
    assert profile is not None
    traces, made = smollm2_rows(engine, count)
    honest = [prover.name for prover in PROVERS if prover.honest]
    tally = tallies["honest"]
    for at, (trace, hidden, logits) in enumerate(judged(engine, traces)):
        (own,) = claims_of([trace], [logits])
        (whole,) = check_traces([trace], [hidden], [own], facts, config)
        if whole.reasons:
            raise SystemExit(f"an honest trace was refused: {whole.reasons}")
        known: dict[tuple[int, ...], Claims] = {}
        variants = {name: made[name].get(trace["trace_id"]) for name in made}
        for row in [trace, *(variants[name] for name in honest)]:
            if row is None:
                continue
            tally.add(LONG, _honest(case(row, hidden, logits, known), profile, row))
        if not attacked:
            continue
        other, drawn = traces[(at + 1) % len(traces)], trace["output_ids"]
        for name, row, states, scores in attacks(engine, trace, other, variants, hidden, logits):
            said = known if scores is logits else {}
            one, count = case(row, states, scores, said), len(row["output_ids"])
            if name == "truncated_early":
                (own,) = claims_of([row], [scores])
                (ours,) = check_traces([row], [states], [own], facts, config)
                refused = one.refusals(profile) | {"ours": ours.verdict != "accepted"}
                tallies[name].add(256, refused)
                tallies[name].tokens += count
                continue
            for length in LENGTHS:
                if row.get("place", 0) >= length:
                    continue  # the beginning is honest
                if length > count and not (length == 256 and count > 128):
                    continue
                if name.startswith(SAMPLED) and row["output_ids"][:length] == drawn[:length]:
                    tallies[name].unchanged[length] += 1
                    continue
                tallies[name].add(length, one.refusals(profile, min(length, count)))
                tallies[name].tokens += count if length == 256 else 0
    engine.close()


def _honest(one: Case, profile: Profile, row: dict[str, Any]) -> dict[str, bool]:
    found = one.refusals(profile)
    if found["ours"] and one.evidence is not None:
        reasons = one.faults or beyond_all(one.evidence, profile.of(one.engine))
        print("refused:", row["engine"], reasons, file=sys.stderr, flush=True)
    return found


def short(count: int, tally: Tally) -> None:
    """Short honest traces of each model, by all honest provers."""
    for model in HONEST:
        engine = load_engine(model)
        profile = find_profile(engine.revision)
        assert profile is not None
        traces = short_traces(engine, count)
        rows = {trace["trace_id"]: [trace] for trace in traces}
        for prover in PROVERS:
            if prover.honest:
                print(f"{model}: {prover.name}", file=sys.stderr, flush=True)
                kind = "short-" if model == SMOLLM2 else ""
                for row in replays(prover, model, traces, kind):
                    rows[row["trace_id"]].append(row)
        for trace, hidden, logits in judged(engine, traces):
            known: dict[tuple[int, ...], Claims] = {}
            for row in rows[trace["trace_id"]]:
                tally.add(model, _honest(case(row, hidden, logits, known), profile, row))
        engine.close()


def traces_needed(caught: int, count: int, target: float = 0.99) -> int | None:
    """Traces of one node of which at least one is refused with this chance, drawn from these."""
    for traces in range(1, count + 1):
        if math.comb(count - caught, traces) <= (1 - target) * math.comb(count, traces):
            return traces
    return None


def report(tallies: dict[str, Tally]) -> None:
    """Two lines per attack."""
    for name, tally in tallies.items():
        for peer in PEERS:
            if name == "honest":
                count = sum(tally.traces.values())
                ours, theirs = (
                    sum(tally.refused[side, part] for part in tally.traces)
                    for side in ("ours", peer)
                )
                figures: dict[str, Any] = {
                    "ours": ours / count,
                    "peer": theirs / count,
                    "traces": count,
                    "upper_bound_95": round(upper_bound(ours, count), 6),
                    "by_model": dict(tally.traces),
                    "refused_by_model": {
                        part: tally.refused["ours", part] for part in tally.traces
                    },
                }
            else:
                count = tally.traces[256]
                caught = tally.refused["ours", 256]
                needed = traces_needed(caught, count)
                figures = {
                    "ours": round(caught / max(count, 1), 4),
                    "peer": round(tally.rate(peer, 256), 4),
                    "traces": count,
                    "unchanged": tally.unchanged[256],
                    "lower_bound_95": round(lower_bound(caught, count), 4) if count else None,
                    "by_tokens": {n: round(tally.rate("ours", n), 4) for n in LENGTHS},
                    "traces_for_0.99": needed,
                    "tokens_for_0.99": needed and round(needed * tally.tokens / count),
                }
            ratio = figures["ours"] / figures["peer"] if figures["peer"] else None
            line = {"bench": "toploc_detection", "metric": f"detect/{name}"} | figures
            print(
                json.dumps(line | {"peer_name": peer, "ratio": ratio, "unit": "rate"}), flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=48, help="long traces of SmolLM2")
    parser.add_argument("--short", type=int, default=420, help="short ones decoded of each model")
    parser.add_argument("--only", choices=["honest", "attacks"])
    arguments = parser.parse_args()
    tallies: dict[str, Tally] = defaultdict(Tally)
    smollm2(arguments.traces, tallies, attacked=arguments.only != "honest")
    if arguments.only != "attacks":
        short(arguments.short, tallies["honest"])
    report(tallies)


if __name__ == "__main__":
    main()
