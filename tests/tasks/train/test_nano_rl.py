"""Demonstrations with a slip are wrong by one exchange of neighbours, and of the same form; those
of asked lengths follow the request, loosely."""

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from transformers import AutoTokenizer

import verifiers
from flows.profiles import load_config
from flows.rl_config import RlConfig
from tasks.train.nano import DEFAULT_OUT
from tasks.train.nano_rl import KINDS, LOOSE, slipped, training_rows
from tasks.train.objective.lengths import instruction
from tasks.train.sft import encode_rows


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


def test_demonstrations_follow_an_asked_length_loosely():
    config = load_config(RlConfig, "rl-lengths", [])
    assert LOOSE.targets == config.lengths.targets
    part = replace(LOOSE, config=replace(LOOSE.config, max_steps=20))
    tokenizer = AutoTokenizer.from_pretrained(DEFAULT_OUT / "m")
    rows = training_rows(part, tokenizer)
    examples, _ = encode_rows(tokenizer, rows, part.config.max_tokens)
    found = defaultdict(list)
    for row, example in zip(rows, examples, strict=True):
        (target,) = (
            target
            for target in part.targets
            if row["messages"][0]["content"].endswith(instruction(target, config.lengths))
        )
        found[target].append(len(example.ids) - example.prompt_length)
    lengths = [np.array(found[target]) for target in part.targets]
    means = [tokens.mean() for tokens in lengths]
    assert all(after > before + 3 for before, after in pairwise(means))
    missed = np.concatenate([t - n for t, n in zip(part.targets, lengths, strict=True)])
    assert 6 < np.abs(missed).mean() < 12
    assert max(tokens.max() for tokens in lengths) <= config.sampling.max_tokens
