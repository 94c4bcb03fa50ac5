"""Raw rows to task rows: the public forms load as they are, everything else is set aside."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_contracts.collect import SCHEMA
from data_contracts.text import table_from_rows
from infra.storage.quarantine import row_json
from tasks.collect.rows import Bad, Raw, to_task

PUBLIC = {
    "problem_id": "vfmath_1",
    "task_type": "verifiable_math",
    "prompt": "What is 3/4 + 1/4? Put the answer in \\boxed{}.",
    "verification_info": '{"ground_truth": "1"}',
}


def _task(**changes):
    row = {**PUBLIC, **changes}
    task = to_task(Raw({k: v for k, v in row.items() if v is not ...}, "here", 1))
    assert isinstance(task, dict), task
    return task


def _reason(**changes):
    row = {k: v for k, v in {**PUBLIC, **changes}.items() if v is not ...}
    bad = to_task(Raw(row, "here", 1))
    assert isinstance(bad, Bad)
    assert bad.row is row and bad.origin == "here:1"
    return bad.reason


def test_a_public_row_loads_as_it_is():
    task = _task()
    assert task["prompt"] == [{"role": "user", "content": PUBLIC["prompt"]}]
    assert task["verification_info"] == '{"ground_truth":"1"}'
    assert task["gold"] == "\\boxed{1}"
    assert task["problem_id"] == "vfmath_1"
    assert task["binary"] is True
    assert task["source"] == "here"


def test_the_id_does_not_depend_on_the_form_of_the_row():
    listed = [{"role": "user", "content": PUBLIC["prompt"]}]
    same = _task(prompt=listed, verification_info={"ground_truth": "1"}, problem_id=7)
    assert same["task_id"] == _task()["task_id"]
    assert same["problem_id"] == "7"


def test_python_literals_of_older_rows_are_read():
    assert _task(verification_info="{'ground_truth': '1', 'x': None}")["verification_info"] == (
        '{"ground_truth":"1","x":null}'
    )


def test_huge_numbers_keep_every_digit():
    truth = 2**70
    info = _task(verification_info=json.dumps({"ground_truth": truth}))["verification_info"]
    assert json.loads(info) == {"ground_truth": truth}


def test_broken_text_in_a_prompt_is_repaired_and_noted():
    task = _task(prompt="ok \ud83d")
    assert task["prompt"][0]["content"] == "ok \ufffd"
    assert json.loads(task["metadata"])["prompt_text_repaired"] is True


def test_further_columns_are_named_not_lost_without_a_word():
    task = _task(llm_response="long", source="numina", metadata='{"level": 3}')
    assert json.loads(task["metadata"]) == {
        "columns_left_out": ["llm_response"],
        "level": 3,
        "row_source": "numina",
    }


def test_a_row_without_a_name_is_named_by_its_content():
    task = _task(problem_id=...)
    assert task["problem_id"] == task["task_id"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"prompt": ...}, "missing_key: prompt"),
        ({"prompt": None, "task_type": ...}, "missing_key: task_type, prompt"),
        ({"task_type": 3}, "wrong_type: task_type"),
        ({"task_type": "verifiable_poetry"}, "unknown_task_type: 'verifiable_poetry'"),
        ({"prompt": 5}, "wrong_type: prompt"),
        ({"prompt": []}, "wrong_type: prompt"),
        ({"prompt": ["hi"]}, "wrong_type: a message"),
        ({"prompt": [{"role": "user", "content": None}]}, "wrong_type: a message"),
        ({"prompt": [{"role": "god", "content": "x"}]}, "wrong_type: a message"),
        ({"prompt": " \n"}, "empty_prompt"),
        ({"verification_info": "{broken"}, "bad_verification_info"),
        ({"verification_info": "[1]"}, "wrong_type: verification_info"),
        ({"verification_info": 3.5}, "wrong_type: verification_info"),
        ({"verification_info": '{"a": NaN}'}, "bad_verification_info: NaN"),
        ({"verification_info": {"a": float("nan")}}, "not_json"),
        ({"verification_info": {"a": "\ud83d"}}, "not_json"),
        ({"verification_info": {1: 2}}, "not_json"),
        ({"verification_info": '{"a": 1e999}'}, "bad_verification_info: the number"),
        ({"gold": 4}, "wrong_type: gold"),
    ],
)
def test_unfit_rows_say_why(changes, code):
    assert _reason(**changes).startswith(code)


def test_duplicate_keys_are_refused_not_read_as_a_python_literal():
    assert _reason(verification_info='{"ground_truth": 1, "ground_truth": 2}').startswith(
        "bad_verification_info: the key 'ground_truth' stands twice"
    )


def test_duplicate_keys_of_python_literals_are_refused_too():
    reason = _reason(verification_info="{'ground_truth': 1, 'ground_truth': 2}")
    assert reason == "bad_verification_info: a key stands twice in one object"


def test_numbers_too_long_and_nesting_too_deep_are_refused():
    assert _reason(verification_info='{"a": ' + "9" * 5000 + "}").startswith("bad_verif")
    assert _reason(verification_info='{"a": ' + "[" * 100_000).startswith("bad_verif")
    deep: list = []
    for _ in range(3000):
        deep = [deep]
    assert _reason(verification_info={"a": deep}).startswith(("too_deep", "not_json"))


_TEXT = st.text(st.characters(codec=None), max_size=8)  # lone surrogates too
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXT | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(
    row=st.dictionaries(st.sampled_from([*PUBLIC, "metadata", "gold", "source"]) | _TEXT, _VALUE),
    whole=st.booleans(),
)
def test_any_row_becomes_a_storable_task_or_is_set_aside(row, whole):
    row = {**PUBLIC, **row} if whole else row
    outcome = to_task(Raw(row, "here", 1))
    if isinstance(outcome, Bad):
        json.loads(row_json(outcome.row))
        assert outcome.reason
    else:
        table_from_rows([outcome], SCHEMA)


def test_the_gold_column_of_judged_rows_reaches_the_verifier():
    row = {
        "task_type": "llm_judgeable_groundtruth_similarity",
        "prompt": "Why is the sky blue?",
        "gold_standard_solution": "Rayleigh scattering.",
        "verification_info": "{'judging_instructions': 'Be strict.'}",
    }
    task = to_task(Raw(row, "test"))
    assert json.loads(task["verification_info"]) == {
        "ground_truth": "Rayleigh scattering.",
        "judging_instructions": "Be strict.",
        "problem": "Why is the sky blue?",
    }
