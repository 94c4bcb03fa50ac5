"""What the rounds teach: `tracemill rl` from the committed start policy, several seeds.

Each seed is a whole command line run (flow, nodes, checks, trainer, broadcast), on a storage root
that the seeds share, so that the tasks are published once; its time is given apart. The result of
a seed is the mean of its last three evaluations, sampled at temperature 1, greedy beside it.

    python -m tests.bench.rl_learning [--profile rl-local] [--seeds 1 2 3] [--set key=value ...]

A run's id has the hash of its config: with the same `--out` the same call goes on with its runs,
and one with other settings makes runs of its own.

Prints one JSON line per seed and kind, and one for their mean: metric `solve_rate/<kind>`, ours:
after the rounds, peer: the start policy, ratio: ours / peer; with length targets also
`length_error/<kind>`, ratio: peer / ours. Reports and curves stay in `--out`.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from data_contracts.ids import canonical_json
from flows.profiles import load_config
from flows.rl_config import RlConfig

BENCH = "rl_learning"


def rounds(root: Path, profile: str, seed: int, overrides: list[str]) -> dict[str, Any]:
    sets = [f"seed={seed}", f"storage.root={root}", *overrides]
    config = canonical_json(load_config(RlConfig, profile, sets).dump())
    digest = hashlib.sha256(config.encode()).hexdigest()[:8]
    command = [sys.executable, "-m", "flows.cli", "rl", "--profile", profile, "--json"]
    command += ["--run-id", f"{Path(profile).stem}-{seed}-{digest}"]
    command += [part for value in sets for part in ("--set", value)]
    started = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"seed {seed} ended with {done.returncode}")
    return json.loads(done.stdout) | {"wall": time.perf_counter() - started}


def lines(profile: str, name: str, figures: list[dict[str, float]]) -> list[dict[str, Any]]:
    """The figures of one kind, of one or several seeds, as JSON lines."""

    def mean(key: str) -> float:
        return sum(figure[key] for figure in figures) / len(figures)

    common = {
        "bench": BENCH,
        "peer_name": "start policy",
        "profile": profile,
        "seeds": len(figures),
    }
    found = []
    for decoding in ("sampled", "greedy"):
        ours, peer = mean(decoding), mean(f"start_{decoding}")
        metric = f"solve_rate/{name}" + ("" if decoding == "sampled" else "/greedy")
        found.append(
            common
            | {"metric": metric, "ours": round(ours, 4), "peer": round(peer, 4),
               "ratio": round(ours / peer, 3) if peer else None, "unit": "share"}
        )  # fmt: skip
    if "length_error" in figures[0]:
        ours, peer = mean("length_error"), mean("start_length_error")
        found.append(
            common
            | {"metric": f"length_error/{name}", "ours": round(ours, 3), "peer": round(peer, 3),
               "ratio": round(peer / ours, 3), "unit": "tokens"}
        )  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="rl-local")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--out", type=Path, help="storage root; default: a new one in /tmp")
    given = parser.parse_args()
    root = given.out or Path(tempfile.mkdtemp(prefix="rl-learning-"))
    of_kind: dict[str, list[dict[str, float]]] = {}
    for seed in given.seeds:
        result = rounds(root, given.profile, seed, given.overrides)
        for kind, figures in result["kinds"].items():
            of_kind.setdefault(kind, []).append(figures)
            for line in lines(given.profile, kind, [figures]):
                print(json.dumps(line | {"seed": seed}), flush=True)
        print(
            json.dumps(
                {"bench": BENCH, "metric": "seconds_per_seed", "ours": round(result["wall"], 1),
                 "peer": None, "peer_name": None, "ratio": None, "unit": "s", "seed": seed}
            ),
            flush=True,
        )  # fmt: skip
    if len(given.seeds) > 1:
        for kind, all_figures in of_kind.items():
            for line in lines(given.profile, kind, all_figures):
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
