"""Faults that other verifiers had in public: generators (C), JSON and sandboxes (B, I), IFEval (J).

Those of mathematics stand in test_math.py, hangs in test_pool.py, attacks in
test_sandbox_attacks.py, other parser runtimes in test_health.py, storage in test_kinds.py.
"""

import json
import time

import pytest
import reasoning_gym

import verifiers
from verifiers.kinds.ifeval_functions import FUNCTIONS
from verifiers.registry import KINDS, judge_row

_PROGRAM = "```python\n{}\n```"


def _gym(name, *, seed=1, metadata=None, **config):
    """An entry as storage gives it back, and the row made of it."""
    (entry,) = list(reasoning_gym.create_dataset(name, size=1, seed=seed, **config))
    entry = {**entry, "metadata": {**entry["metadata"], **(metadata or {})}}
    entry = json.loads(json.dumps(entry, default=str))
    return entry, {"reasoning_gym_dataset": name, "reasoning_gym_entry": json.dumps(entry)}


def _answer(info, answer):
    return judge_row("reasoning_gym", f"<answer>{answer}</answer>", info)


def _code(tests, program):
    info = {"test_cases": json.dumps(tests)}
    return verifiers.score("prime_rl_code", _PROGRAM.format(program), info)


# B2: rows whose gold is empty are for no answer to solve.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name != "null_reward"])
@pytest.mark.parametrize("empty", ["", " ", None, [], {}])
def test_an_empty_truth_is_the_rows_fault(kind, empty):
    for _, info, expected in kind.self_tests:
        if expected is None or kind.missing():
            continue
        blank = {key: empty for key in info}
        if kind.name == "code_output_prediction":
            continue  # every JSON value is a truth there
        if kind.name == "complex_json_output" and empty == {}:
            continue
        got = verifiers.score(kind.task_types[0], "x \\boxed{1}", blank)
        assert (got.score, got.status) == (None, "unverifiable"), got


# B8: what a candidate leaves behind is gone for the next one.
def test_the_next_candidate_finds_a_fresh_directory(sandbox_here):
    tests = {"inputs": ["", ""], "outputs": ["[]", "[]"]}
    source = "import os\nprint(sorted(os.listdir('.')))\nopen('user_code.py', 'w').write('x')"
    assert _code(tests, source).score == 1
    assert _code(tests, source).score == 1


# C2: each number as often as it is given, and no rounding of results.
@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("81*1", 0),
        ("81*1*1*1", 1),
        ("81*1*1*1*1", 0),
        ("81", 0),
        ("81*1*1/1+0", 0),
        ("80.9+1-1", 0),
    ],
)
def test_countdown_needs_all_numbers(answer, score):
    _, info = _gym("countdown", metadata={"numbers": [1, 81, 1, 1], "target": 81})
    assert _answer(info, answer).score == score


# C3: no rounding between the question and its gold; numbers that are not given do not count.
def test_countdown_refuses_other_numbers():
    _, info = _gym("countdown", metadata={"numbers": [2, 3, 7], "target": 42})
    assert _answer(info, "2*3*7").score == 1
    assert _answer(info, "6*7").score == 0
    assert _answer(info, "42").score == 0


def test_sorted_numbers_are_those_of_the_question():
    for seed in range(20):
        entry, info = _gym("number_sorting", seed=seed, min_decimals=2, max_decimals=2)
        numbers = entry["metadata"]["original_numbers"]
        descending = entry["metadata"]["direction"] == "descending"
        ordered = sorted(map(str, numbers), key=float, reverse=descending)
        assert all(number in entry["question"] for number in ordered)
        assert _answer(info, json.dumps(ordered)).score == 1
        assert _answer(info, json.dumps(ordered[::-1])).score == 0


# C5: generators without a gold answer are scored by their own check, or not at all.
@pytest.mark.parametrize(
    "name", ["boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"]
)
def test_generators_without_a_gold_reward_no_garbage(name):
    entry, info = _gym(name)
    assert entry["answer"] is None
    for garbage in ("", "None", "zzz", "null", "0"):
        got = _answer(info, garbage)
        assert got.score in (0, None), got


# C9: partial credit for pieces of the gold is no reward; blanks around an answer cost nothing.
@pytest.mark.parametrize(
    "name", ["chain_sum", "letter_counting", "gcd", "spell_backward", "basic_arithmetic"]
)
def test_only_the_whole_answer_counts(name):
    entry, info = _gym(name)
    gold = entry["answer"]
    assert _answer(info, f" {gold} \n").score == 1
    for garbage in (f"not {gold}, it is 999", "zzz", "None", "", f"{gold} {gold}"):
        assert _answer(info, garbage).score == 0, garbage


# C11: a conclusion that follows is right, whichever the generator had in mind.
def test_conclusions_are_checked_by_meaning():
    _, info = _gym(
        "propositional_logic", metadata={"premises": ["R", "Q"], "variables": ["Q", "R"]}
    )
    assert _answer(info, "(R ∨ Q)").score == 1
    assert _answer(info, "(Q ∧ R)").score == 1
    assert _answer(info, "(Q ∧ ¬R)").score == 0


# I2, I4: JSON is read strictly, and there are no further properties.
@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"a": 1, "b": [true]}', 1),
        ('{"a": 1.0, "b": [true]}', 1),
        ('{"a": 1, "b": [true], "c": 0}', 0),
        ('{"a": true, "b": [true]}', 0),
        ('{"a": 1, "b": [1]}', 0),
        ('{"a": NaN, "b": [true]}', 0),
        ('{"a": 2, "a": 1, "b": [true]}', 0),
        ('{"\\u0061": 2, "a": 1, "b": [true]}', 0),
        ("[" * 100_000, 0),
        ('{"a": 1, "b": [true]} ' + "]" * 100_000, 1),
    ],
)
def test_objects_are_compared_exactly(text, score):
    got = verifiers.score("complex_json_output", text, {"ground_truth": {"a": 1, "b": [True]}})
    assert got.score == score, got


# I4: a model that forbids further keys does; one that does not, does not.
def test_models_decide_about_further_keys(sandbox_here):
    head = "from pydantic import BaseModel, ConfigDict\nclass M(BaseModel):\n    n: int\n"
    closed = head + "    model_config = ConfigDict(extra='forbid')\n"
    for source, score in ((head, 1), (closed, 0)):
        info = {"pydantic_config": source, "model_name": "M"}
        assert verifiers.score("pydantic_adherance", '{"n": 1, "m": 2}', info).score == score


# I5: fences inside a string are part of the string.
@pytest.mark.parametrize("wrap", ["{}", "\n{}\n", "Here:\n```json\n{}\n```"])
def test_a_fence_within_a_string(wrap):
    truth = {"body": "```ts\nlet x = {};\n```", "n": 1}
    text = wrap.replace("{}", json.dumps(truth))
    got = verifiers.score("complex_json_output", text, {"ground_truth": truth})
    assert got.score == 1, got


# I7, I8: leaving early is no success, and each way to fail has its status.
@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("import os\nos._exit(0)\ndef f(x): return x + 1", "crash"),
        ("import sys\nsys.exit(0)\ndef f(x): return x + 1", "crash"),
        ("def f(x): import os; os._exit(0)", "crash"),
        ("def f(x): raise SystemExit(0)", "crash"),
        ("def f(x): raise ValueError(x)", "crash"),
        ("def f(x): return x", "ok"),
        ("print('PASSED')\ndef f(x): return None", "ok"),
    ],
)
def test_ways_to_fail(program, status, sandbox_here):
    got = _code({"fn_name": "f", "inputs": ["1"], "outputs": ["2"]}, program)
    assert (got.score, got.status) == (0, status), got


def _constraint(name, text, **arguments):
    return verifiers.score("ifeval", text, {"ground_truth": {"func_name": name, **arguments}})


# J2: no other letter in place of one that makes no sense.
@pytest.mark.parametrize("letter", ["#", "", "ab", "7", None, 5])
def test_letters_that_are_none(letter):
    got = _constraint("verify_letter_frequency", "a # b ## 7", letter=letter, N=1)
    assert (got.score, got.status) == (None, "unverifiable")


# J3: unknown names are never true, whatever the text; title case is not upper case.
@pytest.mark.parametrize("text", ["", "x", "I OBEY.", "{}"])
def test_unknown_constraints_are_never_true(text):
    for name in (
        "repeat_prompt",
        "combination:repeat_prompt",
        "validate_",
        "__class__",
        *map(str.upper, FUNCTIONS),
    ):
        assert _constraint(name, text).score is None


def test_title_case_is_not_upper_case():
    assert _constraint("validate_uppercase", "This Is Title Case.").score == 0
    assert _constraint("validate_uppercase", "THIS IS.").score == 1


# J5: what is in no language is not in the right one.
@pytest.mark.parametrize("text", ["1234", "🙂🙂🙂", "?!", "3.14 - 2 = 1.14"])
def test_no_letters_are_in_no_language(text):
    for language in ("en", "de", "zh"):
        assert _constraint("validate_response_language", text, language=language).score == 0


def test_hostile_conclusions_end():
    _, info = _gym("propositional_logic")
    started = time.monotonic()
    assert _answer(info, "(" * 20_000 + "P").score in (0, None)
    assert time.monotonic() - started < 120
