"""An rl split for benchmarks, without a run that makes it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from data_contracts import publish as contract
from data_contracts.ids import canonical_json, task_id
from data_contracts.text import table_from_rows
from flows.profiles import load_profile
from infra.storage import Store, parquet_bytes
from tasks.train.curriculum import KINDS

SEED = 3_000_000
"""Far from the seeds of the nano models' training and held-out tasks."""


def write_split(directory: Path, names: Sequence[str], tasks: int, profile: str = "") -> Path:
    """A dataset directory as `publish` leaves it, with about so many tasks of each kind.

    Their options are those that a profile of tasks has, else those of the nano models' training.
    """
    kinds = [kind for kind in KINDS if kind.name in names]
    if profile:
        sources = load_profile(profile, []).collect.sources
        options = {s.generator: s.options for s in sources if s.kind == "reasoning_gym"}
        kinds = [replace(kind, settings=options[kind.name]) for kind in kinds]
    rows = {}
    for kind in kinds:
        for task in kind.tasks(SEED, tasks):
            prompt = [{"role": "user", "content": task.prompt}]
            identity = task_id(task.task_type, prompt, task.verification_info)
            rows[identity] = {
                "problem_id": identity,
                "task_id": identity,
                "task_type": task.task_type,
                "prompt": prompt,
                "verification_info": canonical_json(task.verification_info),
                "avg_reward_any": 0.5,
                "pass_rate_any": 0.5,
                "n_any": 4,
            }
    table = table_from_rows([rows[key] for key in sorted(rows)], contract.rl(["any"]))
    Store(str(directory)).write_bytes("rl/train-00000-of-00001.parquet", parquet_bytes(table))
    return directory
