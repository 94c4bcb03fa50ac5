"""Makers: distinct, the same in every process, easy when asked to be, strict about knobs."""

import hashlib
import json
import os
import subprocess
import sys
from itertools import pairwise
from statistics import fmean

import pytest

from tasks.collect.dedupe import prompt_key
from tasks.collect.errors import BadOption, UnknownName
from tasks.collect.makers import MAKERS
from tasks.collect.makers._random import stream
from tasks.collect.makers._stdlib import FUNCTIONS, call, source_of
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
    rows = (MAKERS[task_type](seed, index) for index in range(1100))
    keys = {prompt_key([{"role": "user", "content": row["prompt"]}]) for row in rows}
    assert len(keys) >= 1000


@pytest.mark.parametrize("knobs", [{"kind": "stdlib"}, {"kind": "stdlib", "level": 1}])
def test_a_thousand_distinct_calls_of_the_standard_library(knobs):
    make = MAKERS["code_output_prediction"]
    assert len({make(5, index, **knobs)["prompt"] for index in range(1100)}) >= 1000


@pytest.mark.parametrize("task_type", MAKERS)
def test_a_task_does_not_depend_on_what_was_made_before(task_type):
    make = MAKERS[task_type]
    forwards = [make(8, index) for index in range(30)]
    assert [make(8, index) for index in reversed(range(30))] == forwards[::-1]


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


def _leaves(value):
    if isinstance(value, dict | list):
        return sum(map(_leaves, value.values() if isinstance(value, dict) else value))
    return 1


def _truth(row):
    return next(iter(row["verification_info"].values()))


HARDNESS = [
    ("ascii_tree_formatting", "max_nodes", (5, 12, 30, 60), lambda r: _truth(r).count("\n")),
    ("ascii_tree_formatting", "depth", (1, 2, 5), lambda r: r["prompt"].count("  ")),
    ("code_output_prediction", "steps", (1, 4, 12, 40), lambda r: r["prompt"].count("\n")),
    ("complex_json_output", "level", (1, 2, 4, 5), lambda r: len(r["prompt"])),
    ("complex_json_output", "size", (2, 5, 12, 40), lambda r: _leaves(_truth(r))),
    ("formatask", "words", (1, 2, 6, 12), lambda r: len(_truth(r).split())),
    ("formatask", "extra_sentences", (0, 2, 8, 20), lambda r: len(r["prompt"])),
    ("git_diff", "level", (1, 2, 3), lambda r: len(r["prompt"])),
    ("ifeval", "size", (1, 3, 8, 20), lambda r: len(r["gold"])),
    ("pydantic_adherance", "depth", (0, 1, 3, 6), lambda r: r["prompt"].count("class ")),
    ("pydantic_adherance", "fields", (1, 3, 6, 12), lambda r: r["prompt"].count("\n")),
    ("pydantic_adherance", "rules", (0, 1, 3), lambda r: r["prompt"].count("raise")),
    ("reverse_text", "max_words", (2, 8, 40), lambda r: len(_truth(r))),
    ("unscramble_sentence", "max_sentences", (4, 8, 30), lambda r: _truth(r).count("\n")),
]


@pytest.mark.parametrize(("task_type", "knob", "values", "measure"), HARDNESS)
def test_knobs_make_tasks_harder(task_type, knob, values, measure):
    means = [
        fmean(measure(MAKERS[task_type](6, index, **{knob: value})) for index in range(40))
        for value in values
    ]
    assert all(low < high for low, high in pairwise(means)), means


@pytest.mark.parametrize("kind", ["stdlib", "humaneval"])
def test_levels_of_real_functions_go_by_their_length(kind):
    make = MAKERS["code_output_prediction"]
    sizes = [
        [make(2, index, kind=kind, level=level)["prompt"].count("\n") for index in range(40)]
        for level in (1, 2, 3)
    ]
    assert fmean(sizes[0]) < fmean(sizes[1]) < fmean(sizes[2])


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__qualname__)
def test_functions_of_the_standard_library_give_json(function):
    for index in range(60):
        written, value = call(function, stream("test", 0, index))
        assert json.loads(json.dumps(value, allow_nan=False)) == value
        assert function.__name__ in written and function.__name__ in source_of(function)


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
        ("pydantic_adherance", {"rules": 4}, "from 0 to 3"),
        ("code_output_prediction", {"kind": "stdlib", "level": 4}, "from 0 to 3"),
        ("code_output_prediction", {"kind": "steps", "level": 1}, "stdlib, humaneval, codeio"),
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
