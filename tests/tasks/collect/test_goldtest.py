"""The self-test catches wrong golds and rewards for garbage, through the real verifiers."""

import json

import pytest

from tasks.collect import goldtest
from tasks.collect.makers import MAKERS
from tasks.collect.makers._constraints import CONSTRAINTS
from tasks.collect.rows import Raw, to_task
from verifiers.sandbox import run


def _task(task_type, prompt, info, **more):
    row = {"task_type": task_type, "prompt": prompt, "verification_info": info, **more}
    task = to_task(Raw(row, "test"))
    assert isinstance(task, dict), task
    return task


def _outcomes(*tasks):
    return goldtest.check(tasks, workers=1)


def test_right_and_wrong_golds():
    right = _task("verifiable_math", "1+1?", {"ground_truth": "2"})
    wrong = _task("verifiable_math", "1+2?", {"ground_truth": "3"}, gold="\\boxed{2}")
    partial = _task("reverse_text", "ab c", {"ground_truth": "c ba"}, gold="<answer>c b</answer>")
    unboxed = _task("verifiable_math", "1+3?", {"ground_truth": "4"}, gold="4")
    first, *others = _outcomes(right, wrong, partial, unboxed)
    assert first == goldtest.Verdict(True, "passed")
    assert all(not verdict.keep for verdict in others)
    assert all(verdict.outcome.startswith("gold_fails") for verdict in others)


def test_a_row_that_cannot_be_judged_is_set_aside():
    empty = _task("verifiable_math", "1+1?", {"ground_truth": ""}, gold="\\boxed{2}")
    nameless = _task("ifeval", "Write.", {"ground_truth": {"func_name": "validate_nothing"}})
    for verdict in _outcomes(empty, nameless):
        assert not verdict.keep
        assert verdict.outcome.startswith("unverifiable")


def test_a_task_that_rewards_garbage_is_set_aside():
    text = goldtest.GARBAGE[1]
    word = {"func_name": "verify_keywords", "keyword_list": [text.split()[0].strip(",")]}
    (verdict,) = _outcomes(_task("ifeval", "Write.", {"ground_truth": word}))
    assert not verdict.keep
    assert verdict.outcome.startswith("garbage_passes")


def test_without_a_gold_only_garbage_is_tried():
    info = {"ground_truth": {"func_name": "validate_json_format"}}
    assert _outcomes(_task("ifeval", "Write.", info)) == [goldtest.Verdict(True, "no_gold")]


def test_without_a_sandbox_code_stays_and_is_marked(monkeypatch):
    # The one thing that cannot be real on a machine that has a sandbox.
    monkeypatch.setattr(run, "availability", lambda: (False, "no user namespaces"))
    model = to_task(Raw(MAKERS["pydantic_adherance"](0, 0), "test"))
    sums = _task("verifiable_math", "1+1?", {"ground_truth": "2"})
    assert [v.outcome for v in _outcomes(model, sums)] == [
        "untested: no user namespaces",
        "passed",
    ]


_MODEL = "from pydantic import BaseModel\n\nclass M(BaseModel):\n    n: int\n"


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        (_MODEL + "while True: pass\n", "unverifiable"),
        (_MODEL + "import os\nos.fork()\n", "unverifiable"),
        (_MODEL.replace("int", "int = 0"), "garbage_passes"),
        (_MODEL, "no_gold"),
    ],
    ids=["never_ends", "forks", "takes_anything", "sound"],
)
def test_models_are_tried_without_a_gold(source, outcome, sandbox):
    info = {"pydantic_config": source, "model_name": "M"}
    (verdict,) = _outcomes(_task("pydantic_adherance", "Make an M.", info))
    assert verdict.outcome.partition(":")[0] == outcome
    assert verdict.keep == (outcome == "no_gold")


def test_garbage_in_the_form_of_the_kind_is_tried(sandbox):
    word = "qzv_never"
    tests = json.dumps({"inputs": [""], "outputs": [word]})
    rows = [
        _task("complex_json_output", "?", {"ground_truth": {word: 17}}),
        _task("code_output_prediction", "?", {"code_output": word}),
        _task("prime_rl_code", "?", {"test_cases": tests}),
        _task("prime_rl_code", "?", {"test_cases": tests.replace(word, "x")}),
    ]
    *passing, sound = _outcomes(*rows)
    assert all(verdict.outcome.startswith("garbage_passes") for verdict in passing)
    assert sound == goldtest.Verdict(True, "no_gold")


def test_constraints_that_garbage_cannot_meet_pass():
    names = sorted(CONSTRAINTS)
    rows = [MAKERS["ifeval"](9, i, constraint=name) for name in names for i in range(3)]
    verdicts = _outcomes(*(to_task(Raw(row, "test")) for row in rows))
    assert {verdict.outcome for verdict in verdicts} == {"passed"}


@pytest.mark.parametrize("task_type", sorted(set(MAKERS) - {"pydantic_adherance", "ifeval"}))
def test_every_maker_passes(task_type, easy):
    make = MAKERS[task_type]
    rows = [make(9, i) for i in range(12)] + [make(9, i, **easy[task_type]) for i in range(12)]
    verdicts = _outcomes(*(to_task(Raw(row, "test")) for row in rows))
    assert {verdict.outcome for verdict in verdicts} == {"passed"}
