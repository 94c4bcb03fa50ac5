"""Many mixed rows with hostile ones among them through the real verify stage.

A run is made with one task and one accepted answer per row, all distinct, of all kinds; then its
shards go through `Scorer` from as many threads as a flow has, over the Dask cluster of the stage.
One row in a hundred is hostile; of those, `--long` take their whole limit (real limits: 5 s of
CPU, 15 s of wall time, 10 s of CPU), the others end soon. Afterwards: every accepted answer has its
reward, every score is the known one, the funnel adds up, and the memory was bounded.

    python -m tests.bench.verify_scale [--rows 100000] [--long 60] [--workers 0]

Prints JSON lines; there is no peer. Exit code 1 when a row is lost or a score is wrong.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from data_contracts import collect, generate, ids, plan, validate
from data_contracts.text import table_from_rows
from flows.shards import MAX_THREADS
from infra.storage import RunLayout, Store, commit_table, read_table
from tasks.generate.plan import Shard, shards
from tasks.report.funnel import funnel
from tasks.verify.cluster import dask_client
from tasks.verify.config import VerifyConfig
from tasks.verify.stage import Scorer
from tests.bench.verify_rows import hostile, made

MODEL = "bench/model"
SHARD_ROWS = 1000
SAMPLING: dict[str, Any] = {
    "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "max_tokens": 64, "stop": [],
}  # fmt: skip


class Memory:
    """Peak memory of this process and of everything below it, sampled in a thread."""

    def __init__(self) -> None:
        self.flow = self.largest = self.total = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._done.wait(2):
            self.flow = max(self.flow, me.memory_info().rss / 2**20)
            total = _proportional(me.pid)
            for child in me.children(recursive=True):
                share = _proportional(child.pid)
                self.largest = max(self.largest, share)
                total += share
            self.total = max(self.total, total)


def _proportional(pid: int) -> float:
    """MiB of a process, what it shares counted in parts; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def make_run(
    store: Store, layout: RunLayout, rows: int, long: int, shard_rows: int = SHARD_ROWS
) -> dict[str, float | None]:
    """Commit tasks, plan, traces and verdicts; returns the known score of each trace."""
    count = rows // 100
    every = max(1, count // long) if long else 0
    tasks: list[dict[str, Any]] = []
    planned: list[dict[str, Any]] = []
    known: dict[str, float | None] = {}
    completions: dict[str, str] = {}
    for number in range(rows):
        if number % 100 == 99:
            index = number // 100
            slow = bool(every) and index % every == 0 and index // every < long
            made_row = hostile(index // every if slow else index, long=slow)
        else:
            made_row = made(number)
        task_type, completion, info, score = made_row
        prompt = [{"role": "user", "content": f"Row {number}"}]
        task = ids.task_id(task_type, prompt, info)
        tasks.append(
            {
                "task_id": task,
                "problem_id": f"row-{number}",
                "source": "made/bench",
                "task_type": task_type,
                "prompt": prompt,
                "verification_info": json.dumps(info),
                "metadata": "{}",
                "gold": None,
                "binary": True,
            }
        )
        trace = ids.trace_id(
            task_id=task, model=MODEL, model_revision="r", sampling=SAMPLING, run_seed=0,
            sample_index=0,
        )  # fmt: skip
        planned.append({"trace_id": trace, "task_id": task, "model": MODEL, "sample_index": 0})
        known[trace], completions[trace] = score, completion
    counts = {"rows_in": rows, "rows_out": rows, "quarantined": 0, "reasons": {}}
    info = {"counts": counts}
    _commit(store, layout.tasks, tasks, collect.SCHEMA, info)
    rows_of_plan = []
    for first in range(0, rows, shard_rows):
        part = planned[first : first + shard_rows]
        trace_ids = [row["trace_id"] for row in part]
        shard = ids.shard_id(model=MODEL, trace_ids=trace_ids, batch_plan=[0] * len(part))
        for position, row in enumerate(part):
            seed = ids.trace_seed(row["trace_id"])
            rows_of_plan.append(
                {**row, "shard_id": shard, "batch": 0, "position": position, "seed": seed}
            )
        slug = ids.model_slug(MODEL)
        counts = {"rows_in": len(part), "rows_out": len(part), "quarantined": 0, "reasons": {}}
        info = {"counts": counts, "status": {"ok": len(part)}}
        traces = [_trace(row, completions.pop(row["trace_id"])) for row in part]
        _commit(store, layout.traces(slug, shard), traces, generate.SCHEMA, info)
        verdicts = [
            {
                "trace_id": row["trace_id"], "shard_id": shard, "verdict": "accepted",
                "reasons": [], "figures": "{}", "validator": "bench",
            }
            for row in part
        ]  # fmt: skip
        _commit(store, layout.verdicts(slug, shard), verdicts, validate.SCHEMA, {"counts": counts})
    _commit(store, layout.plan("annotators"), rows_of_plan, plan.SCHEMA, {})
    return known


def _trace(row: dict[str, Any], completion: str) -> dict[str, Any]:
    return {
        **row, "model_revision": "r", "seed": ids.trace_seed(row["trace_id"]),
        "sampling": ids.canonical_json(SAMPLING), "prompt_ids": [1], "output_ids": [2],
        "logprobs": [-0.5], "completion": completion, "status": "ok", "finish_reason": "stop",
        "error": None, "proofs": bytes(258), "stage_proofs": None, "transcript_hash": None,
        "signature": None, "engine": "bench", "node_id": "bench", "group_id": None, "seconds": 1.0,
    }  # fmt: skip


def _commit(store: Store, path: str, rows: list[dict[str, Any]], schema: Any, info: Any) -> None:
    table = table_from_rows(rows, schema)
    commit_table(store, path, table, schema=schema, producer="bench", info=info)


def score_all(store: Store, layout: RunLayout, config: VerifyConfig) -> float:
    """Take all shards through the stage; returns the seconds that it took."""
    todo: list[Shard] = shards(read_table(store, layout.plan("annotators")))
    with dask_client(config) as client, ThreadPoolExecutor(MAX_THREADS) as threads:
        scorer = Scorer(store, layout, config, client, allow_unaudited=False)
        started = time.perf_counter()
        for done, manifest in enumerate(threads.map(scorer.run, todo), 1):
            seconds = time.perf_counter() - started
            print(f"{done}/{len(todo)} shards, {seconds:.0f} s", manifest.info["status"],
                  file=sys.stderr, flush=True)  # fmt: skip
        return time.perf_counter() - started


def faults(store: Store, layout: RunLayout, known: dict[str, float | None]) -> list[str]:
    """What is wrong with the rewards; empty when nothing is lost and every score is right."""
    found: list[str] = []
    seen: Counter[str] = Counter()
    for shard in shards(read_table(store, layout.plan("annotators"))):
        path = layout.rewards(ids.model_slug(MODEL), shard.shard_id)
        for row in read_table(store, path).to_pylist():
            seen[row["trace_id"]] += 1
            if row["score"] != known.get(row["trace_id"], -1.0):
                found.append(f"{row['verifier']} {row['score']} {row['status']} {row['detail']}")
    lost = len(known.keys() - seen.keys())
    twice = sum(count > 1 for count in seen.values())
    if lost or twice or len(seen) != len(known):
        found.append(f"{lost} rows lost, {twice} twice, {len(seen)} of {len(known)}")
    result = funnel(store, layout)
    (stage,) = (row for row in result.stages if row.stage == "verify")
    if not stage.balanced or stage.missing or stage.rows_in != len(known):
        found.append(f"the funnel does not add up: {stage}")
    return found + list(result.problems)


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--long", type=int, default=60)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        store, layout = Store(root), RunLayout("bench")
        known = make_run(store, layout, options.rows, options.long)
        with Memory() as memory:
            seconds = score_all(store, layout, VerifyConfig(workers=options.workers))
        found = faults(store, layout, known)
    figures = {
        "verify_scale_rows_per_s": (len(known) / seconds, "rows/s"),
        "verify_scale_seconds": (seconds, "s"),
        "verify_scale_flow_peak_rss": (memory.flow, "MiB"),
        "verify_scale_largest_child_peak_pss": (memory.largest, "MiB"),
        "verify_scale_all_processes_peak_pss": (memory.total, "MiB"),
        "verify_scale_faults": (float(len(found)), "rows"),
    }
    for metric, (value, unit) in figures.items():
        line = {"bench": "verify_scale", "metric": metric, "ours": round(value, 1), "peer": None}
        print(json.dumps({**line, "peer_name": None, "ratio": None, "unit": unit}))
    for fault in found[:20]:
        print(fault, file=sys.stderr)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
