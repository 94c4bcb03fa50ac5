"""Demonstrations with a slip: wrong by one exchange of neighbours, and of the same form."""

import json

import numpy as np
import pytest

import verifiers
from tasks.train.nano_rl import KINDS, slipped


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_slip_exchanges_two_neighbours_and_is_wrong(kind):
    rng = np.random.Generator(np.random.Philox(2))
    wrong = 0
    for task in kind.tasks(7, 20):
        entry = json.loads(task.verification_info["reasoning_gym_entry"])
        completion = kind.completion(slipped(kind.name, entry, rng))
        assert sorted(completion) == sorted(task.completion)
        score = verifiers.score(task.task_type, completion, task.verification_info)
        wrong += score.score != 1.0
        assert entry == json.loads(task.verification_info["reasoning_gym_entry"])
    # Two equal letters side by side make no difference.
    assert wrong >= 15
