"""Good rows of every table, as a real run would write them."""

from __future__ import annotations

import json
from typing import Any

from data_contracts import ids

MODEL = "tracemill/nano-s"
SAMPLING = {
    "temperature": 0.8,
    "top_p": 0.95,
    "top_k": 0,
    "min_p": 0.0,
    "max_tokens": 64,
    "stop": ["</answer>"],
}
RUN_SEED = 7
SHARD = ids.content_id("shard")

Row = dict[str, Any]


def task(number: int) -> Row:
    prompt = [{"role": "user", "content": f"What is {number} + 1?"}]
    info = {"ground_truth": str(number + 1)}
    return {
        "task_id": ids.task_id("verifiable_math", prompt, info),
        "problem_id": f"sum_{number}",
        "source": "sums",
        "task_type": "verifiable_math",
        "prompt": prompt,
        "verification_info": json.dumps(info),
        "metadata": "{}",
        "gold": str(number + 1),
        "binary": True,
    }


def trace(number: int, n_output: int = 40) -> Row:
    task_id = task(number)["task_id"]
    trace_id = ids.trace_id(
        task_id=task_id,
        model=MODEL,
        model_revision="rev-1",
        sampling=SAMPLING,
        run_seed=RUN_SEED,
        sample_index=0,
    )
    return {
        "trace_id": trace_id,
        "task_id": task_id,
        "model": MODEL,
        "model_revision": "rev-1",
        "sample_index": 0,
        "seed": ids.trace_seed(trace_id),
        "sampling": json.dumps(SAMPLING),
        "prompt_ids": list(range(20)),
        "output_ids": list(range(n_output)),
        "logprobs": [-0.25] * n_output,
        "completion": "<think>one more</think><answer>2</answer>",
        "status": "ok",
        "finish_reason": "stop",
        "error": None,
        "proofs": bytes(258 * -(-n_output // 32)),
        "stage_proofs": None,
        "transcript_hash": None,
        "signature": None,
        "engine": "transformers",
        "node_id": "local-0",
        "group_id": None,
        "seconds": 1.5,
    }


def plan(number: int) -> Row:
    row = trace(number)
    return {
        "trace_id": row["trace_id"],
        "task_id": row["task_id"],
        "model": MODEL,
        "shard_id": SHARD,
        "sample_index": 0,
        "batch": number // 8,
        "position": number,
        "seed": row["seed"],
    }


def verdict(number: int) -> Row:
    return {
        "trace_id": trace(number)["trace_id"],
        "shard_id": SHARD,
        "verdict": "accepted" if number % 3 else "rejected",
        "reasons": [] if number % 3 else ["exponent mismatches 90 > 38"],
        "figures": '{"exp_mismatches": 3}',
        "validator": "toploc@1/local",
    }


def reward(number: int) -> Row:
    row = trace(number)
    return {
        "trace_id": row["trace_id"],
        "task_id": row["task_id"],
        "model": MODEL,
        "status": "ok" if number % 4 else "unverifiable",
        "verifier": "math@1",
        "verifier_config": "{}",
        "detail": "",
        "score": float(number % 2) if number % 4 else None,
        "binary": True,
        "seconds": 0.01,
    }


def difficulty(number: int) -> Row:
    passed = number % 5
    return {
        "task_id": task(number)["task_id"],
        "model": MODEL,
        "n_requested": 4,
        "n_scored": 4,
        "k_passed": passed,
        "avg_reward": passed / 4,
        "pass_rate": passed / 4,
        "ci_low": 0.0,
        "ci_high": 1.0,
    }


def quarantined(number: int) -> Row:
    return {
        "stage": "collect",
        "reason": "gold_not_blank: a gold answer is null or has text",
        "row": json.dumps({"number": number}),
        "origin": "file:///tasks.jsonl:3",
    }


def full(number: int) -> Row:
    row, answer = task(number), trace(number)
    return {
        **{key: row[key] for key in ("problem_id", "task_id", "task_type", "prompt")},
        "verification_info": row["verification_info"],
        "model": MODEL,
        "sample_index": 0,
        "completion": answer["completion"],
        "finish_reason": "stop",
        "reward": 1.0,
        "reward_status": "ok",
        "binary": True,
    }


def sft(number: int) -> Row:
    row = full(number)
    return {
        **{key: row[key] for key in ("problem_id", "task_id", "task_type")},
        "messages": [*row["prompt"], {"role": "assistant", "content": row["completion"]}],
        **{key: row[key] for key in ("completion", "reward", "reward_status")},
    }


def rl(number: int) -> Row:
    row = full(number)
    keys = ("problem_id", "task_id", "task_type", "prompt", "verification_info")
    return {
        **{key: row[key] for key in keys},
        "avg_reward_small": 0.5,
        "pass_rate_small": 0.5,
        "n_small": 4,
    }


def rollout(number: int) -> Row:
    row = trace(number)
    return {
        "input_tokens": row["prompt_ids"],
        "output_tokens": row["output_ids"],
        "input_logprobs": None,
        "output_logprobs": row["logprobs"],
        "prompt": "What is 1 + 1?",
        "problem_id": f"sum_{number}",
        "completion": row["completion"],
        "advantages": 0.5 if number % 2 else None,
        "rewards": 1.0 if number % 2 else None,
        "task_rewards": 1.0 if number % 2 else None,
        "length_penalties": 0.0 if number % 2 else None,
        "proofs": row["proofs"],
        "step": 3,
        "target_lengths": -1,
        "task_type": "verifiable_math",
        "seed": row["seed"],
        "temperature": 1.0,
        "sample_id": row["trace_id"],
        "task_id": row["task_id"],
        "rollout_step": 5,
        "group": number // 4,
        "sample_index": number % 4,
        "model": MODEL,
        "model_revision": row["model_revision"],
        "sampling": row["sampling"],
        "status": "ok",
        "finish_reason": "stop",
        "error": None,
        "engine": "transformers",
        "node_id": "a" * 64,
        "transcript_hash": b"h" * 32,
        "signature": b"s" * 64,
        "seconds": 1.5,
    }
