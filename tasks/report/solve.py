"""Solve table: per kind of task and model, how many answers were right, wrong or unscored.

Invariant: unscored answers are neither right nor wrong; every planned trace is in one cell.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping

from tasks.report.model import SolveRow
from tasks.report.outcomes import Outcomes
from tasks.report.plans import Plans


def solve_table(
    plans: Plans, outcomes: Outcomes, task_types: Mapping[str, str]
) -> tuple[SolveRow, ...]:
    """The table by task type, models in their order; `task_types` maps a task id to its type."""
    cells: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for trace_id, (task_id, model) in plans.traces.items():
        cell = cells[task_types[task_id], model]
        cell["planned"] += 1
        cell["accepted"] += trace_id in outcomes.accepted
        if trace_id in outcomes.scored:
            cell[outcomes.scored[trace_id]] += 1
    order = {model: number for number, model in enumerate(plans.models())}
    return tuple(
        SolveRow(
            task_type=task_type,
            model=model,
            planned=cell["planned"],
            accepted=cell["accepted"],
            right=cell["right"],
            wrong=cell["wrong"],
            unscored=cell["unscored"],
        )
        for (task_type, model), cell in sorted(
            cells.items(), key=lambda item: (item[0][0], order[item[0][1]])
        )
    )
