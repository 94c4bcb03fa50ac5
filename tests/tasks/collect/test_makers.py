"""Makers: distinct, the same in every process, easy when asked to be, strict about knobs."""

import hashlib
import json
import os
import subprocess
import sys

import pytest

from tasks.collect.errors import BadOption, UnknownName
from tasks.collect.makers import MAKERS
from tasks.collect.makers._words import ADJECTIVES, CITIES, NAMES, NOUNS, VERBS

_DIGEST = """
import hashlib, json
from tasks.collect.makers import MAKERS
rows = [make(seed, i) for make in MAKERS.values() for seed in (0, 7) for i in range(40)]
print(hashlib.sha256(json.dumps(rows).encode()).hexdigest())
"""


@pytest.mark.parametrize("task_type", MAKERS)
@pytest.mark.parametrize("seed", [0, 999_999])
def test_a_thousand_distinct_tasks(task_type, seed):
    prompts = {MAKERS[task_type](seed, index)["prompt"] for index in range(1100)}
    assert len(prompts) >= 1000


def test_the_same_tasks_in_every_process():
    digests = set()
    for hash_seed in ("0", "1", "4711"):
        done = subprocess.run(
            [sys.executable, "-c", _DIGEST],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    rows = [make(seed, i) for make in MAKERS.values() for seed in (0, 7) for i in range(40)]
    digests.add(hashlib.sha256(json.dumps(rows).encode()).hexdigest() + "\n")
    assert len(digests) == 1


@pytest.mark.parametrize("task_type", MAKERS)
def test_other_seeds_give_other_tasks(task_type):
    first, second = ({MAKERS[task_type](s, i)["prompt"] for i in range(50)} for s in (1, 2))
    assert len(first & second) < 5


@pytest.mark.parametrize("task_type", MAKERS)
def test_easy_settings_are_short(task_type, easy):
    rows = [MAKERS[task_type](3, index, **easy[task_type]) for index in range(200)]
    assert max(len(row["prompt"]) for row in rows) <= 300
    assert max(len(row["gold"]) for row in rows) <= 230
    assert len({row["prompt"] for row in rows}) >= 100


@pytest.mark.parametrize("task_type", MAKERS)
def test_rows_are_plain_json(task_type):
    for index in range(50):
        row = MAKERS[task_type](11, index)
        assert json.loads(json.dumps(row, allow_nan=False)) == row
        assert row["task_type"] == task_type


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_harder_levels_exist(level):
    assert MAKERS["verifiable_math"](0, 0, level=level)["metadata"]["level"] == level
    assert MAKERS["complex_json_output"](0, 0, level=level)["metadata"]["level"] == level


@pytest.mark.parametrize(
    ("task_type", "knobs", "part"),
    [
        ("reverse_text", {"min_words": 0}, "from 1 to 40"),
        ("verifiable_math", {"level": 9}, "from 1 to 4"),
        ("unscramble_sentence", {"story": "epic"}, "any, clock, chain"),
        ("git_diff", {"level": True}, "from 1 to 3"),
    ],
)
def test_bad_knobs_say_what_is_allowed(task_type, knobs, part):
    with pytest.raises(BadOption, match=part):
        MAKERS[task_type](0, 0, **knobs)


def test_unknown_kind_of_problem_names_the_nearest():
    with pytest.raises(UnknownName, match="'quadratic'"):
        MAKERS["verifiable_math"](0, 0, kind="quadratics")


@pytest.mark.parametrize("words", [NAMES, NOUNS, ADJECTIVES, VERBS, CITIES])
def test_word_lists_hold_no_word_twice(words):
    assert len(set(words)) == len(words)
