"""Learning curves for rollouts that are 0, 1, 2 and 4 policy versions old.

The same rounds by the profile rl-local (nodes, checks, trainer, broadcast as processes; without
Prefect) with the same seed, tasks, steps and samples. Every rollout of step N comes from version
N - 1 - k exactly, the oldest that staleness k allows (in a run the newest version that is there is
taken, so that most rollouts are younger), and so the samples do not depend on the machine's speed.

    python -m tests.bench.rl_staleness [--steps 16] [--held-out 160] [--seed 1] [--nodes 1]

Prints JSON lines: `solve_rate/staleness_<k>/<kind>`, the mean of the last three evaluations with
its 95 % interval, peer: staleness 0, and whether the difference is within noise; `seconds/
staleness_<k>`.
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infra.storage import RunLayout, Store
from tasks.provision.config import ProvisionConfig
from tasks.provision.local import local_pool
from tasks.train.rounds.config import RoundsConfig
from tasks.train.rounds.driver import Events
from tasks.train.rounds.estimates import Estimate
from tasks.train.rounds.layout import RlLayout
from tasks.train.rounds.session import opened
from tests.bench.rl_rounds import compared, curve, last_rates, rounds_by
from tests.bench.rl_tasks import write_split

BENCH = "rl_staleness"
STALENESS = (0, 1, 2, 4)
KINDS = ["spell_backward", "number_sorting"]
EVALUATIONS = 4
"""Of trained versions, evenly over the steps."""


class Oldest(RoundsConfig):
    """Rounds whose rollouts are as old as they may be."""

    def versions(self, step: int) -> tuple[int, int]:
        oldest, _ = super().versions(step)
        return oldest, oldest


@dataclass
class Result:
    """What a run came to."""

    rates: dict[str, Estimate]
    curves: dict[str, list[tuple[int, float]]]
    seconds: float


def run(dataset: Path, staleness: int, given: argparse.Namespace) -> Result:
    """The rounds with one staleness."""
    settings = {
        "seed": given.seed,
        "tasks.held_out": given.held_out,
        "rounds.steps": given.steps,
        "rounds.staleness": staleness,
        "evaluation.every": max(1, given.steps // EVALUATIONS),
    }
    rounds = rounds_by("rl-local", dataset, settings)
    rounds = replace(rounds, rounds=Oldest(**rounds.rounds.model_dump()))
    store, layout = Store(tempfile.mkdtemp(prefix="rl-staleness-")), RlLayout(RunLayout("bench"))
    began = time.monotonic()
    with (
        local_pool(ProvisionConfig(nodes=given.nodes), store, f"{layout.root}/pool") as pool,
        opened(rounds, store, layout, pool, Events()) as driver,
    ):
        driver.run()
    seconds = time.monotonic() - began
    rates = last_rates(store, layout, rounds)
    return Result(rates, {kind: curve(store, layout, kind) for kind in rates}, seconds)


def say(metric: str, figures: dict[str, Any]) -> None:
    """One line."""
    line = {"bench": BENCH, "metric": metric, "peer_name": "staleness 0"}
    print(json.dumps(line | figures), flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--held-out", type=int, default=160, help="tasks of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=1)
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="rl-staleness-tasks-"))
    dataset = write_split(directory, KINDS, given.held_out + 500, "rl-tasks")
    fresh: Result | None = None
    for staleness in STALENESS:
        found = run(dataset, staleness, given)
        fresh = fresh or found
        for kind, rate in found.rates.items():
            figures = compared(rate, fresh.rates[kind]) | {"curve": found.curves[kind]}
            say(f"solve_rate/staleness_{staleness}/{kind}", figures | {"seed": given.seed})
        ours, peer = found.seconds, fresh.seconds
        say(
            f"seconds/staleness_{staleness}",
            {"ours": round(ours, 1), "peer": round(peer, 1), "ratio": round(peer / ours, 3),
             "unit": "s"},
        )  # fmt: skip


if __name__ == "__main__":
    main()
