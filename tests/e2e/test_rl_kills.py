"""RL rounds under kill -9: of the trainer, of a node, of the flow, at twenty moments.

The run resumes each time; no rollout is trained on twice; in synchronous mode the weights at the
end are those of a run that nobody disturbed.
"""

import hashlib
import random
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from tests.bench.rl_tasks import write_split

STEPS = 24
KILLS = 20
VICTIMS = ("tasks.train.trainer.main", "tasks.provision.worker", "flow")


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    dataset = write_split(tmp_path_factory.mktemp("words"), ["spell_backward"], 80)
    values = (
        f"tasks.dataset={dataset}", "tasks.held_out=8", "tasks.difficulty.maximum=1.0",
        "model=tracemill/nano-s", "sampling.max_tokens=24", f"rounds.steps={STEPS}",
        "rounds.staleness=0", "rounds.group_size=4", "rounds.groups_per_job=6",
        "rounds.groups_per_step=4", "trainer.optimizer_steps=2", "trainer.total_steps=48",
        "evaluation.every=12", "evaluation.tasks=8", "provision.nodes=2",
        # What a secret draw leaves unchecked would differ from run to run.
        "trust.check.audit.floor=1.0",
    )  # fmt: skip
    return [part for value in values for part in ("--set", value)]


def command(cli, arguments):
    return ["rl", "--run-id", "rounds", "--set", f"storage.root={cli.root}", *arguments]


def victim(flow: psutil.Process, wanted: str) -> psutil.Process | None:
    if wanted == "flow":
        return flow
    for child in flow.children(recursive=True):
        try:
            if wanted in child.cmdline():
                return child
        except psutil.NoSuchProcess:
            continue
    return None


def weights(root: Path) -> str:
    folder = root / "runs" / "rounds" / "rl" / "trainer" / "weights" / f"step_{STEPS:06d}"
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def trained(root: Path) -> list[str]:
    folder = root / "runs" / "rounds" / "rl" / "trainer" / "selection"
    files = sorted(folder.glob("step_*.parquet"))
    assert len(files) == STEPS
    return [name for file in files for name in pq.read_table(file)["sample_id"].to_pylist()]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_rounds_resume_and_end_with_the_same_weights(cli, arguments, tmp_path):
    calm = type(cli)(cli.home, tmp_path / "calm")
    done = calm(*command(calm, arguments))
    assert done.returncode == 0, done.stdout + done.stderr

    rng = random.Random(20)
    process = cli.start(*command(cli, arguments))
    kills = dict.fromkeys(VICTIMS, 0)
    steps = cli.root / "runs" / "rounds" / "rl" / "steps"
    while sum(kills.values()) < KILLS:
        code = process.poll()
        if code == 0:
            break
        if code is not None:
            process = cli.start(*command(cli, arguments))
        seen, begun = len(list(steps.glob("*.json"))), time.monotonic()
        wanted = VICTIMS[sum(kills.values()) % len(VICTIMS)]
        # Up to two kills between two steps, else at any moment of a step.
        while len(list(steps.glob("*.json"))) == seen and rng.random() > 0.002:
            if process.poll() is not None or time.monotonic() - begun > 120:
                break
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, 0.6))
        if process.poll() is not None:
            continue
        found = victim(psutil.Process(process.pid), wanted)
        if found is not None:
            found.kill()
            kills[wanted] += 1
            if wanted == "flow":
                process.wait(60)
    if process.poll() is None:
        assert process.wait(900) == 0, cli.output()
    elif process.returncode != 0:
        done = cli(*command(cli, arguments))
        assert done.returncode == 0, done.stdout + done.stderr
    assert sum(kills.values()) == KILLS, f"the run ended after {kills}"
    assert min(kills.values()) >= KILLS // len(VICTIMS)

    assert weights(cli.root) == weights(calm.root)
    assert trained(cli.root) == trained(calm.root)
    assert len(set(trained(cli.root))) == len(trained(cli.root))
    metrics = cli.root / "runs" / "rounds" / "rl" / "trainer" / "metrics.parquet"
    assert pq.read_table(metrics)["step"].to_pylist() == list(range(1, STEPS + 1))
