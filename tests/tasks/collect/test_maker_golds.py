"""Golds score 1.0 and near misses score what the rules say, through the real verifiers."""

import json
import re

import pytest

from tasks.collect.config import HumanEvalSource
from tasks.collect.errors import SandboxNeeded
from tasks.collect.makers import MAKERS, _codeio
from tasks.collect.sources import read
from verifiers import score, score_many


def _completion(text: str) -> str:
    return f"<think>\nhm\n</think>\n{text}"


def _score(row, text):
    return score(row["task_type"], _completion(text), row["verification_info"]).score


def _check_golds(rows):
    scores = score_many(
        [
            {
                "task_type": row["task_type"],
                "completion": _completion(row["gold"]),
                "verification_info": json.dumps(row["verification_info"]),
            }
            for row in rows
        ],
        workers=2,
    )
    for row, result in zip(rows, scores, strict=True):
        assert result.score == pytest.approx(1.0, abs=1e-9), (row["prompt"], row["gold"], result)


def test_golds_score_one(easy):
    rows = [
        make(seed, index, **knobs)
        for task_type, make in MAKERS.items()
        if task_type != "pydantic_adherance"
        for seed, knobs in ((0, {}), (5, easy[task_type]))
        for index in range(40)
    ]
    rows += [MAKERS["verifiable_math"](1, i, level=level) for level in (3, 4) for i in range(40)]
    rows += [MAKERS["complex_json_output"](1, i, level=level) for level in (3, 4) for i in range(9)]
    rows += [MAKERS["git_diff"](1, i, level=3) for i in range(20)]
    _check_golds(rows)


def test_golds_of_models_score_one(easy, sandbox):
    make = MAKERS["pydantic_adherance"]
    rows = [make(0, index, depth=index % 3, fields=4) for index in range(12)]
    rows += [make(1, index, **easy["pydantic_adherance"]) for index in range(6)]
    _check_golds(rows)


def test_functions_of_a_data_set_get_their_results_from_the_sandbox(sandbox):
    make = MAKERS["code_output_prediction"]
    rows = [make(0, index, kind="codeio") for index in range(4)]
    assert rows[1] == make(0, 1, kind="codeio")
    assert len({row["prompt"] for row in rows}) == 4
    _check_golds(rows)


def test_without_a_sandbox_code_of_a_data_set_is_not_run(monkeypatch):
    # The one thing that cannot be real on a machine that has a sandbox.
    monkeypatch.setattr(_codeio, "availability", lambda: (False, "no user namespaces"))
    with pytest.raises(SandboxNeeded, match="no user namespaces"):
        MAKERS["code_output_prediction"](0, 0, kind="codeio")


@pytest.mark.parametrize("limit", [4, pytest.param(0, marks=pytest.mark.slow)])
def test_human_eval_golds_score_one(sandbox, limit):
    _check_golds([raw.row for raw in read(HumanEvalSource(limit=limit))])


def test_pydantic_near_misses(sandbox):
    for index in range(4):
        row = MAKERS["pydantic_adherance"](2, index, depth=1)
        value = json.loads(row["gold"])
        first = next(iter(value))
        missing = {key: item for key, item in value.items() if key != first}
        assert _score(row, json.dumps(missing)) == 0.0
        assert _score(row, json.dumps({**value, first: {"no": ["such"]}})) == 0.0


def test_json_near_misses():
    row = MAKERS["complex_json_output"](0, 1, level=3)
    value = json.loads(row["gold"])
    assert _score(row, json.dumps(dict(reversed(value.items())))) == 1.0
    value["people"][0]["age"] += 1
    assert _score(row, json.dumps(value)) == 0.0
    del value["people"][0]["age"]
    assert _score(row, json.dumps(value)) == 0.0


def test_code_output_near_misses():
    row = MAKERS["code_output_prediction"](0, 0)
    value = row["verification_info"]["code_output"]
    assert _score(row, json.dumps({"code_output": [value]})) == 0.0
    assert _score(row, json.dumps({"output": value})) == 0.0


def test_math_near_misses():
    for index in range(20):
        row = MAKERS["verifiable_math"](4, index)
        assert _score(row, f"\\boxed{{{row['verification_info']['ground_truth']}+1}}") == 0.0
        assert _score(row, row["verification_info"]["ground_truth"]) == 0.0


def test_sentences_with_the_last_one_first_score_the_longest_run():
    row = MAKERS["unscramble_sentence"](0, 0, min_sentences=5, max_sentences=5)
    lines = row["verification_info"]["ground_truth"].split("\n")
    answer = "\n".join([lines[-1], *lines[:-1]])
    assert _score(row, f"<unscrambled_text>{answer}</unscrambled_text>") == pytest.approx(4 / 5)


def test_tree_without_its_last_line_scores_less():
    row = MAKERS["ascii_tree_formatting"](0, 0, min_nodes=6, max_nodes=6)
    lines = row["verification_info"]["ground_truth"].split("\n")
    got = _score(row, "<ascii_formatted>\n" + "\n".join(lines[:-1]) + "\n</ascii_formatted>")
    assert got == pytest.approx(0.3 * 10 / 11 + 0.7 * 5 / 6)


def test_lost_marks_cost_nine_tenths():
    row = MAKERS["formatask"](0, 0, task="copy", answers="single")
    truth = row["verification_info"]["ground_truth"]
    bare = re.sub(r"[^a-zA-Z ]", "", truth).lower()
    assert _score(row, f"<extracted_formatted>{bare}</extracted_formatted>") < 0.1


def test_one_of_two_parts_scores_nothing():
    row = MAKERS["formatask"](0, 0, answers="dual")
    truth = row["verification_info"]["ground_truth1"]
    assert _score(row, f"<extracted_formatted1>{truth}</extracted_formatted1>") == 0.0


def test_diff_with_another_value_stays_below_one():
    row = MAKERS["git_diff"](0, 0, level=1)
    wrong = re.sub(r"(?m)^(\+\w+ = )\d+$", r"\g<1>1000", row["gold"])
    assert 0.7 < _score(row, wrong) < 1.0


@pytest.mark.parametrize(
    ("constraint", "wrong"),
    [
        ("validate_lowercase", "Hello there, Ann."),
        ("validate_uppercase", "HELLO There."),
        ("validate_no_commas", "Well, no."),
        ("validate_end", "Something else."),
        ("validate_json_format", "{'a': 1}"),
        ("verify_keyword_frequency", "No such word here."),
        ("verify_paragraph_count", "Only one."),
    ],
)
def test_broken_constraints_score_zero(constraint, wrong):
    row = MAKERS["ifeval"](0, 0, constraint=constraint)
    assert _score(row, wrong) == 0.0
    assert _score(row, row["gold"]) == 1.0
