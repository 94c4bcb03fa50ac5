"""The kinds without a case file of their own detail: ifeval, reasoning-gym, pydantic, texts."""

import json
import time

import pytest
import reasoning_gym

import verifiers
from verifiers.kinds import pydantic_adherence
from verifiers.kinds.ifeval_functions import FUNCTIONS
from verifiers.registry import judge_row
from verifiers.sandbox import Limits

GERMAN = "Das ist ein ganz gewöhnlicher deutscher Satz über das Wetter von heute."

ROWS = [
    ("verify_keywords", {"keyword_list": ["Sea", "tide"]}, "The SEA and its Tide.", 1),
    ("verify_keywords", {"keyword_list": ["sea", "moon"]}, "The sea.", 0),
    ("verify_keyword_frequency", {"word": "sea", "N": 1}, "Seaside sea", 1),
    ("verify_keyword_frequency", {"word": "sea", "N": 2}, "sea, seas", 0),
    ("validate_forbidden_words", {"forbidden_words": ["bad"]}, "All good", 1),
    ("validate_forbidden_words", {"forbidden_words": ["bad"]}, "Too BAD", 0),
    ("verify_letter_frequency", {"letter": "l", "N": 3}, "hello world", 1),
    ("verify_letter_frequency", {"letter": "l", "N": 2}, "hello world", 0),
    ("verify_letter_frequency", {"letter": "#", "N": 3}, "###", None),
    ("validate_response_language", {"language": "de"}, GERMAN, 1),
    ("validate_response_language", {"language": "zh"}, "今天的天气非常好，我们去公园散步吧。", 1),
    ("validate_response_language", {"language": "de"}, "This is a plain English sentence.", 0),
    ("validate_response_language", {"language": "de"}, "1234", 0),
    ("validate_response_language", {"language": "Klingon"}, GERMAN, None),
    ("verify_paragraph_count", {"N": 2}, "a\n* * *\nb", 1),
    ("verify_paragraph_count", {"N": 2}, "a", 0),
    ("validate_word_constraint", {"N": 3, "quantifier": "at least"}, "a b c", 1),
    ("validate_word_constraint", {"N": 3, "quantifier": "at most"}, "a b c d", 0),
    ("validate_word_constraint", {"N": 20, "quantifier": "around"}, "a " * 22, 1),
    ("validate_word_constraint", {"N": 3, "quantifier": "maybe"}, "a", None),
    ("verify_sentence_constraint", {"N": 2, "quantifier": "at least"}, "One. Two!", 1),
    ("verify_sentence_constraint", {"N": 1, "quantifier": "at most"}, "One. Two!", 0),
    ("validate_paragraphs", {"N": 2, "first_word": "Then", "i": 2}, "First\n\nThen it", 1),
    ("validate_paragraphs", {"N": 2, "first_word": "Then", "i": 2}, "Then\n\nFirst", 0),
    ("validate_paragraphs", {"N": 3, "first_word": "Then", "i": 2}, "First\n\nThen it", 0),
    ("validate_paragraphs", {"N": 2, "first_word": "Then", "i": 3}, "First\n\nThen", None),
    ("verify_postscript", {"postscript_marker": "P.S."}, "Text P.S. more", 1),
    ("verify_postscript", {"postscript_marker": "P.S."}, "Text P.S.", 0),
    ("validate_placeholders", {"N": 2}, "[name] and [place]", 1),
    ("validate_placeholders", {"N": 3}, "[name] and [place]", 0),
    ("verify_bullet_points", {"N": 2}, "* a\n- b\ntext", 1),
    ("verify_bullet_points", {"N": 2}, "* a\n***\n**bold**", 0),
    ("validate_title", {}, "<<Title>>\ntext", 1),
    ("validate_title", {}, "<< >>", 0),
    ("validate_choice", {"options": ["A", "B"]}, "I choose A.", 1),
    ("validate_choice", {"options": ["A", "B"]}, "Apple", 0),
    ("validate_highlighted_sections", {"N": 2}, "*a* and **b**", 1),
    ("validate_highlighted_sections", {"N": 2}, "*a*", 0),
    ("validate_sections", {"N": 2, "section_splitter": "Section"}, "Section 1\na\nSection 2\nb", 1),
    ("validate_sections", {"N": 3, "section_splitter": "Section"}, "Section 1\na", 0),
    ("validate_json_format", {}, '{"a": [1, null]}', 1),
    ("validate_json_format", {}, '{"a": 1, "a": 2}', 0),
    ("validate_repeat_prompt", {"original_prompt": "Say hi."}, "Say hi. Hi", 1),
    ("validate_repeat_prompt", {"original_prompt": "Say hi."}, "Hi", 0),
    ("validate_two_responses", {}, "one\n******\ntwo", 1),
    ("validate_two_responses", {}, "one\n******\none", 0),
    ("validate_uppercase", {}, "ALL 1!", 1),
    ("validate_uppercase", {}, "Title Case", 0),
    ("validate_lowercase", {}, "all 1!", 1),
    ("validate_lowercase", {}, "all But one", 0),
    ("validate_frequency_capital_words", {"N": 2, "quantifier": "at least"}, "NASA and ESA", 1),
    ("validate_frequency_capital_words", {"N": 1, "quantifier": "at most"}, "NASA and ESA", 0),
    ("validate_end", {"end_phrase": "The end."}, "So. The end.", 1),
    ("validate_end", {"end_phrase": "The end."}, "The end. No", 0),
    ("validate_quotation", {}, '"all"', 1),
    ("validate_quotation", {}, '"', 0),
    ("validate_no_commas", {}, "a; b", 1),
    ("validate_no_commas", {}, "a, b", 0),
    ("validate_frequency_capital_words", {"N": 1, "quantifier": "often"}, "NASA", None),
    ("verify_keywords", {"keyword_list": []}, "The sea.", None),
    ("validate_forbidden_words", {"forbidden_words": "bad"}, "good", None),
    ("verify_paragraph_count", {"N": -1}, "a", None),
    ("verify_paragraph_count", {"N": True}, "a", None),
    ("validate_choice", {"options": [""]}, "A", None),
    ("validate_end", {}, "x", None),
    ("os.system", {}, "x", None),
    (None, {}, "x", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "text", "expected"), ROWS)
def test_ifeval(name, args, text, expected) -> None:
    got = verifiers.score("ifeval", text, {"ground_truth": {"func_name": name, **args}})
    assert got.score == expected, got
    assert (got.status == "unverifiable") == (expected is None)


def test_every_ifeval_function_is_tested_both_ways() -> None:
    assert len(FUNCTIONS) == 25
    for verdict in (0, 1):
        assert {name for name, _, _, expected in ROWS if expected == verdict} == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_ifeval_function_guesses(name) -> None:
    """Without its arguments, or with ones that mean nothing, a function decides nothing."""
    from inspect import signature

    arguments = list(signature(FUNCTIONS[name]).parameters)[1:]
    for values in ({}, dict.fromkeys(arguments), {key: {"x": 1} for key in arguments}):
        got = judge_row("ifeval", "Some text.", {"ground_truth": {"func_name": name, **values}})
        assert (got.score is None) == bool(arguments), got


def test_language_does_not_change_from_call_to_call() -> None:
    row = {"ground_truth": {"func_name": "validate_response_language", "language": "it"}}
    assert len({judge_row("ifeval", "no te la dico", row).score for _ in range(20)}) == 1


def test_long_blank_lines_take_no_time() -> None:
    row = {"ground_truth": {"func_name": "verify_bullet_points", "N": 1}}
    started = time.process_time()
    assert judge_row("ifeval", "* a\n* " + " " * 19_000 + "\nb", row).score == 1
    assert time.process_time() - started < 5


NO_VERDICT = {
    "boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour",  # no gold answer
    "game_of_life_halting",  # accepts garbage
    "intermediate_integration",  # some golds are unevaluated integrals
    "composite",
}  # fmt: skip


SOME = ("arc_agi", "rearc", "countdown", "maze", "chain_sum", "puzzle24", "simple_integration")


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_reasoning_gym_golds_score_after_storage(seed) -> None:
    from reasoning_gym.factory import DATASETS

    wrong = []
    for name in SOME if seed == 3 else sorted(set(DATASETS) - NO_VERDICT):
        (entry,) = list(reasoning_gym.create_dataset(name, size=1, seed=seed))
        info = {
            "reasoning_gym_dataset": name,
            "reasoning_gym_entry": json.dumps(entry, default=str),
        }
        gold = judge_row("reasoning_gym", f"<answer> {entry['answer']}\n</answer>", info)
        garbage = judge_row("reasoning_gym", "<answer>zzz</answer>", info)
        if gold.score != 1 or garbage.score == 1:
            wrong.append((name, gold, garbage.score))
    assert not wrong


def entry(name: str, seed: int = 1) -> tuple[dict, dict]:
    (made,) = list(reasoning_gym.create_dataset(name, size=1, seed=seed))
    return made, {"reasoning_gym_dataset": name, "reasoning_gym_entry": json.dumps(made)}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("number_sorting", "[NaN, NaN, NaN, NaN]"),
        ("puzzle24", "6*4*1*1"),
        ("countdown", "__import__('os').system('true')"),
        ("simple_integration", "().__class__"),
        ("binary_matrix", "__import__('time').sleep(9)"),
        ("n_queens", "exec('1')"),
    ],
)
def test_reasoning_gym_exploits_score_nothing(name, answer) -> None:
    _, info = entry(name)
    assert judge_row("reasoning_gym", f"<answer>{answer}</answer>", info).score == 0


def test_reasoning_gym_runs_no_code(tmp_path) -> None:
    mark = tmp_path / "mark"
    attack = f"__import__('os').mknod('{mark}')"
    for name in ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion", "countdown",
                 "puzzle24", "simple_integration", "polynomial_multiplication"):  # fmt: skip
        _, info = entry(name)
        judge_row("reasoning_gym", f"<answer>{attack}</answer>", info)
    made, info = entry("bitwise_arithmetic")
    made["metadata"]["problem"] = attack
    info["reasoning_gym_entry"] = json.dumps(made)
    judge_row("reasoning_gym", "<answer>1</answer>", info)
    made, info = entry("number_sorting")
    made["answer"] = attack
    info["reasoning_gym_entry"] = json.dumps(made)
    judge_row("reasoning_gym", "<answer>[1]</answer>", info)
    assert not mark.exists()


def test_public_forms_without_tags() -> None:
    made, info = entry("maze")
    answer = f'Steps: {{"num_steps": "{made["answer"]}"}}'
    assert judge_row("reasoning_gym", f"<think>x</think>{answer}", info).score == 1
    made, info = entry("arc_agi")
    assert judge_row("reasoning_gym", f"So.\nFinal Answer:\n{made['answer']}", info).score == 1


SOURCE = "from pydantic import BaseModel, field_validator\nclass M(BaseModel):\n    n: int\n"


@pytest.mark.parametrize(
    ("source", "name", "status"),
    [
        (SOURCE + "while True: pass", "M", "unverifiable"),
        (SOURCE + "raise SystemExit(0)", "M", "unverifiable"),
        (SOURCE + "import os\nos._exit(0)", "M", "unverifiable"),
        (SOURCE + "b = bytearray(4 << 30)", "M", "unverifiable"),
        (SOURCE + "open('/evil', 'w')", "M", "unverifiable"),
        (SOURCE + "import os\nos.fork()", "M", "unverifiable"),
        (SOURCE, "M.__base__", "unverifiable"),
        (SOURCE, "field_validator", "unverifiable"),
        (SOURCE, "", "unverifiable"),
        ("x = 1", "x", "unverifiable"),
        (
            SOURCE + "    @field_validator('n')\n    def v(cls, x): raise RuntimeError",
            "M",
            "unverifiable",
        ),
        (SOURCE + "    @field_validator('n')\n    def v(cls, x): raise ValueError", "M", "ok"),
    ],
)
def test_pydantic_sources_are_not_trusted(source, name, status, sandbox_here, monkeypatch) -> None:
    monkeypatch.setattr(pydantic_adherence, "LIMITS", Limits(cpu_seconds=1))
    info = {"pydantic_config": source, "model_name": name}
    got = verifiers.score("pydantic_adherance", '{"n": 1}', info)
    assert got.status == status, got
    assert got.score == (0 if status == "ok" else None)


def test_registry() -> None:
    assert verifiers.is_binary("verifiable_math") and not verifiers.is_binary("git_diff")
    with pytest.raises(KeyError):
        verifiers.is_binary("poetry")
    assert "pydantic_adherance" in verifiers.task_types()


def test_self_test_is_clean(sandbox_here) -> None:
    assert verifiers.self_test() == []
