"""The pool's policies against the original's: the SYNTHETIC-2 fleet, three days, 5 % churn an hour.

Both sides play on the same machines with the same rates of trouble (all stated in
infra/pool/simulation/fleet.py). Shards are 300 s of work for us and 1800 s for the original, whose
nodes may upload two files an hour; with --equal both also take 900 s, printed as
`.../equal_shards`; `--without lost_peers` shows what we do without a signal of the agents.

    python -m tests.bench.pool_simulation [--hours 72] [--churn 0.05] [--seeds 1] [--equal]
        [--without lost_peers location standby]

Prints one JSON line per figure: `wasted_gpu_hours`, `recovery_seconds` (mean, from a node's loss
until its work runs elsewhere; where the original never runs it again, its detection counts), then
causes, wrong deaths, and the core with 100,000 nodes.
"""

import argparse
import json
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from typing import Any

from infra.pool.simulation.account import WASTE
from infra.pool.simulation.compare import POLICIES, simulate
from infra.pool.simulation.crowd import crowd
from infra.pool.simulation.fleet import Troubles
from infra.pool.simulation.ours import Signals


def line(metric: str, ours: float, peer: float | None, unit: str) -> None:
    ratio = round(peer / ours, 3) if peer is not None and ours else None
    figures = {
        "bench": "pool_simulation",
        "metric": metric,
        "ours": round(ours, 3),
        "peer": None if peer is None else round(peer, 3),
        "peer_name": None if peer is None else "original policies",
        "ratio": ratio,
        "unit": unit,
    }
    print(json.dumps(figures), flush=True)


def compare(arguments: argparse.Namespace, shard_seconds: float | None, suffix: str) -> None:
    troubles = Troubles(churn=arguments.churn)
    runs: dict[str, list[dict[str, Any]]] = {}
    with ProcessPoolExecutor(2) as workers:
        futures = {
            (name, seed): workers.submit(
                simulate,
                name,
                seed,
                arguments.hours,
                troubles,
                shard_seconds,
                signals=Signals(**dict.fromkeys(arguments.without, False)),
            )
            for seed in range(1, arguments.seeds + 1)
            for name in POLICIES
        }
        for (name, _), future in futures.items():
            runs.setdefault(name, []).append(future.result())

    def median(name: str, key: str) -> float:
        return statistics.median(run.get(key, 0.0) for run in runs[name])

    for metric, key, unit in (
        ("wasted_gpu_hours", "wasted_gpu_hours", "GPU-hours"),
        ("recovery_seconds", "recovery_mean_s", "s"),
        ("recovery_seconds/median", "recovery_median_s", "s"),
        ("recovery_seconds/p95", "recovery_p95_s", "s"),
        *((f"wasted_gpu_hours/{cause}", f"{cause}_gpu_hours", "GPU-hours") for cause in WASTE),
        ("dead_wrongly", "dead_wrongly", "nodes"),
        ("banned_wrongly", "banned_wrongly", "nodes"),
    ):
        line(metric + suffix, median("ours", key), median("original", key), unit)
    for name in POLICIES:
        print(name, json.dumps(runs[name][0]), file=sys.stderr)
    ours, theirs = median("ours", "useful_share"), median("original", "useful_share")
    line("useful_share" + suffix, ours, theirs, "of available GPU-hours")
    assert median("ours", "dead_wrongly") <= median("original", "dead_wrongly")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=72.0)
    parser.add_argument("--churn", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=100_000)
    signals = [field.name for field in fields(Signals)]
    parser.add_argument("--without", nargs="*", default=[], choices=signals)
    parser.add_argument("--equal", action="store_true")
    arguments = parser.parse_args()
    compare(arguments, None, "")
    if arguments.equal:
        compare(arguments, 900.0, "/equal_shards")
    for key, value in crowd(arguments.nodes, 1).items():
        line(f"crowd/{key}", value, None, key.rpartition("_")[2])


if __name__ == "__main__":
    main()
