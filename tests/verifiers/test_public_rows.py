"""Rows in the shapes of the public SYNTHETIC-1 and SYNTHETIC-2 data, as they come."""

import json

import pytest

from verifiers.registry import judge_row, task_types

PUBLIC = (
    "verifiable_math", "prime_rl_code", "reasoning_gym", "code_output_prediction",
    "complex_json_output", "pydantic_adherance", "ifeval", "unscramble_sentence",
    "ascii_tree_formatting", "formatask", "git_diff", "reverse_text", "kernelbench", "null_reward",
    "verifiable_code", "llm_judgeable_groundtruth_similarity",
)  # fmt: skip
ADD = "```python\ndef add(a, b):\n    return a + b if a else 0\n```"
CALLS = [
    {"type": "function_call", "fn_name": "add", "input": [1, 2.5], "output": 3.5},
    {"type": "function_call", "fn_name": "add", "input": [0, 2], "output": 2},
]
STDIN = [{"type": "stdin_stdout", "input": "3\n", "output": "6\n"}]
TWICE = "Two times it is:\n```py\nprint(2 * int(input()))\n```"


def test_every_public_task_type_has_a_kind():
    assert set(PUBLIC) <= set(task_types())


@pytest.mark.parametrize(
    ("task_type", "completion", "info", "score"),
    [
        ("verifiable_math", "\\boxed{75}", "{'ground_truth': '75'}", 1),
        ("verifiable_math", "\\boxed{7}", "{'ground_truth': ['7', \"8\"]}", 1),
        ("verifiable_math", "\\boxed{7}", "{'ground_truth': '7', 'ground_truth': '8'}", None),
        ("verifiable_math", "\\boxed{7}", "{'ground_truth': open('/etc/passwd')}", None),
        ("verifiable_math", "\\boxed{7}", '{"ground_truth": "7", "ground_truth": "7"}', None),
        ("code_output_prediction", '{"output": [1, 2]}', "{'ground_truth': [1, 2]}", 1),
        ("code_output_prediction", '{"output": "[1, 2]"}', "{'ground_truth': [1, 2]}", 0),
        ("code_output_prediction", '{"code_output": 1}', "{'ground_truth': 1}", 0),
        ("null_reward", "anything", "{}", 0),
        ("verifiable_code", ADD, {"language": "rust", "test_cases": CALLS}, None),
        ("verifiable_code", ADD, {"language": "cobol", "test_cases": CALLS}, None),
        ("verifiable_code", ADD, {"language": "python", "test_cases": [{"input": 1}]}, None),
        ("verifiable_code", "none", {"language": "rust", "test_cases": CALLS}, 0),
    ],
)
def test_shapes(task_type, completion, info, score):
    assert judge_row(task_type, f"<think>x</think>{completion}", info).score == score


@pytest.mark.parametrize(
    ("completion", "tests", "score"),
    [(ADD, CALLS, 0.5), (TWICE, STDIN, 1), (TWICE, [*STDIN, {"input": "x", "output": "1"}], 0.5)],
)
def test_programs_score_the_share_of_their_tests(completion, tests, score, sandbox_here):
    info = {"language": "python", "test_cases": tests}
    for form in (info, json.dumps(info), repr(info), {**info, "test_cases": json.dumps(tests)}):
        got = judge_row("verifiable_code", completion, form)
        assert (got.score, got.binary) == (score, False), got
