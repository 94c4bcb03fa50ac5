"""What verification costs over generation, for the same traces on the same engine and core.

SmolLM2 decodes batches of 1, 8, 32 and 64 traces and proves them; then the validate stage's own
`judge` checks exactly those traces: prefill of prompt and output, head, proofs, sampling. Both
sides are CPU seconds of this process with one thread (waiting on a shared machine does not count),
taken in turn; medians over the rounds.

With audits a part of the shards is checked. For a node with the best record that cheats on a half,
a tenth and a hundredth of 100 shards, the cost is that of the rate which catches it with
probability 0.99 (closed form; the simulation stands beside it on stderr). A catch revokes what was
not checked, and a rate of 1 lets no lie through at all.

    python -m tests.bench.toploc_cost [--rounds 3] [--tokens 64] [--batches 1 8 32 64]

Metrics `verify_cost/batch_<b>` and `verify_cost/batch_<b>/caught_<share>`: ratio = generation /
verification (above 1: verification is cheaper). The mark of SYNTHETIC-2, on GPUs, is 25.
"""

import argparse
import json
import statistics
import sys
import time

from data_contracts.ids import canonical_json, trace_seed
from infra.inference import load_engine
from infra.inference.protocol import Engine, Request, SamplingParams
from tasks.generate.work import ProofSink
from tasks.validate.config import ValidateConfig
from tasks.validate.work import judge
from toploc.audit import AuditPolicy, forecast, needed_rate, schedule, simulate

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
MARK = 25.0
SHARDS, TARGET, EARLY = 100, 0.99, 400
SHARES = {"half": 0.5, "tenth": 0.1, "hundredth": 0.01}
QUESTIONS = (
    "Explain in a few sentences why the sky is blue.",
    "Write a short story about a lighthouse keeper.",
    "How do I cook rice so that it does not stick?",
    "List three uses of a magnet and explain each of them.",
    "What is the difference between weather and climate?",
    "Describe how a bicycle stays upright.",
    "Give advice to somebody who learns to play chess.",
    "Why do leaves change their colour in autumn?",
)


def generated(engine: Engine, batch: int, tokens: int, round_: int) -> tuple[list[dict], float]:
    """Traces of one batch as the validate stage reads them, and the CPU seconds they took."""
    sampling = {
        "temperature": 0.6, "top_p": 0.95, "top_k": 0, "min_p": 0.0, "max_tokens": tokens,
        "stop": [],
    }  # fmt: skip
    params = SamplingParams(**sampling | {"stop": ()})
    requests, sink = [], ProofSink()
    for number in range(batch):
        question = f"{QUESTIONS[number % len(QUESTIONS)]} (Answer number {number + 1}.)"
        ids, _ = engine.render([{"role": "user", "content": question}])
        trace_id = f"{(round_ << 16) + (batch << 8) + number:032x}"
        requests.append(Request(trace_id, tuple(ids), trace_seed(trace_id)))
    started = time.process_time()
    completions = engine.generate(requests, params, sink)
    seconds = time.process_time() - started
    rows = [
        {
            "trace_id": request.trace_id,
            "model_revision": engine.revision,
            "seed": request.seed,
            "sampling": canonical_json(sampling),
            "prompt_ids": list(request.prompt_ids),
            "output_ids": done.output_ids,
            "logprobs": done.logprobs,
            "status": done.status,
            "finish_reason": done.finish_reason,
            "proofs": sink.of(request.trace_id),
            "engine": engine.environment,
        }
        for request, done in zip(requests, completions, strict=True)
    ]
    return rows, seconds


def verified(engine: Engine, rows: list[dict], config: ValidateConfig) -> float:
    started = time.process_time()
    verdicts = judge(rows, engine, config)
    seconds = time.process_time() - started
    wrong = {one.verdict: one.reasons for one in verdicts.values() if one.verdict != "accepted"}
    assert not wrong, wrong
    return seconds


def line(metric: str, ours: float, peer: float) -> None:
    print(
        json.dumps(
            {
                "bench": "toploc_cost",
                "metric": metric,
                "ours": round(ours, 3),
                "peer": round(peer, 3),
                "peer_name": "generation of the same traces",
                "ratio": round(peer / ours, 3),
                "unit": "s",
            }
        ),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, 64])
    arguments = parser.parse_args()
    engine, config = load_engine(MODEL), ValidateConfig()
    verified(engine, generated(engine, 2, 4, 99)[0], config)
    times: dict[int, list[tuple[float, float]]] = {batch: [] for batch in arguments.batches}
    for round_ in range(arguments.rounds):
        for batch in arguments.batches:
            rows, generation = generated(engine, batch, arguments.tokens, round_)
            verification = verified(engine, rows, config)
            times[batch].append((verification, generation))
            prompt = sum(len(row["prompt_ids"]) for row in rows)
            output = sum(len(row["output_ids"]) for row in rows)
            print(
                f"round {round_} batch {batch}: {prompt} prompt and {output} output tokens, "
                f"generation {generation:.2f} s, verification {verification:.2f} s",
                file=sys.stderr,
                flush=True,
            )
    rates = {name: audit_rate(name, share) for name, share in SHARES.items()}
    for batch in arguments.batches:
        ours, peer = (statistics.median(side) for side in zip(*times[batch], strict=True))
        line(f"verify_cost/batch_{batch}", ours, peer)
        near(f"batch {batch}, all audited", peer / ours)
        for name, rate in rates.items():
            line(f"verify_cost/batch_{batch}/caught_{name}", ours * rate, peer)
            near(f"batch {batch}, a node that cheats on a {name}", peer / ours / rate)


def audit_rate(name: str, share: float) -> float:
    """The rate that catches with probability TARGET; computed, and played with the real choice."""
    lies = round(share * SHARDS)
    rate = needed_rate(TARGET, lies)
    assert rate is not None
    plan = [0.0] * EARLY + schedule(SHARDS, share)
    policy = AuditPolicy(floor=rate, halving=1)
    played = simulate(policy, plan, 300)
    fresh = forecast(policy, [0.0] * SHARDS).audited
    print(
        f"lies in {lies} of {SHARDS} shards: rate {rate:.4f} catches with {TARGET}; after {EARLY} "
        f"honest shards the chain gives {forecast(policy, plan).caught:.4f}, 300 simulated nodes "
        f"{played.caught:.3f}; a new honest node's first {SHARDS} shards: {fresh:.1%} audited",
        file=sys.stderr,
    )
    return rate


def near(what: str, ratio: float) -> None:
    """How near a setting comes to the mark."""
    share = f"{ratio / MARK:.0%} of it" if ratio < MARK else "reached"
    print(f"{what}: {ratio:.2f}x cheaper than generation, mark {MARK:g}x: {share}", file=sys.stderr)


if __name__ == "__main__":
    main()
