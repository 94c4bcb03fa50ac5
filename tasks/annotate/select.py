"""Which tasks the teacher answers.

Invariant: a pure function of the two tables and the options; the order is that of the tasks table.
"""

import math
from collections import defaultdict

import pyarrow as pa

from tasks.annotate.config import SftConfig


def mean_pass_rates(difficulty: pa.Table) -> dict[str, float]:
    """Task id -> mean pass rate over the annotators that have one; a task without any is absent."""
    rates: dict[str, list[float]] = defaultdict(list)
    task_ids = difficulty.column("task_id").to_pylist()
    for task_id, rate in zip(task_ids, difficulty.column("pass_rate").to_pylist(), strict=True):
        if rate is not None:
            rates[task_id].append(rate)
    return {task_id: math.fsum(values) / len(values) for task_id, values in rates.items()}


def select_for_teacher(tasks: pa.Table, difficulty: pa.Table, config: SftConfig) -> list[str]:
    """The ids of the tasks that the teacher takes, in the order of `tasks`.

    With `hard`, a task that has no pass rate from any annotator is left out.
    """
    task_ids: list[str] = tasks.column("task_id").to_pylist()
    if config.select == "all":
        return task_ids
    rates = mean_pass_rates(difficulty)
    return [
        task_id
        for task_id in task_ids
        if task_id in rates and rates[task_id] <= config.max_pass_rate
    ]
