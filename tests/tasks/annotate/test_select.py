"""The choice of tasks for the teacher."""

import pyarrow as pa
import pytest

from tasks.annotate import SftConfig, select_for_teacher

TASKS = pa.table({"task_id": ["d", "b", "a", "c", "e"]})
DIFFICULTY = pa.table(
    {
        "task_id": ["a", "a", "b", "b", "c", "d", "e"],
        "model": ["m", "n", "m", "n", "m", "m", "m"],
        "pass_rate": pa.array([0.25, 0.75, 1.0, 0.5, None, 0.0, 0.5], pa.float64()),
    }
)


def test_hard_takes_the_mean_over_annotators_in_task_order():
    # a has mean 0.5, b 0.75; c is unknown and so left out
    assert select_for_teacher(TASKS, DIFFICULTY, SftConfig(select="hard")) == ["d", "a", "e"]


@pytest.mark.parametrize(
    ("limit", "expected"), [(0.0, ["d"]), (0.49, ["d"]), (1.0, ["d", "b", "a", "e"])]
)
def test_limit(limit, expected):
    config = SftConfig(select="hard", max_pass_rate=limit)
    assert select_for_teacher(TASKS, DIFFICULTY, config) == expected


def test_all_takes_unknown_ones_too():
    chosen = select_for_teacher(TASKS, DIFFICULTY, SftConfig(select="all"))
    assert chosen == ["d", "b", "a", "c", "e"]


def test_unknown_option_is_refused():
    with pytest.raises(ValueError, match="maximum"):
        SftConfig(select="hard", maximum=0.5)
