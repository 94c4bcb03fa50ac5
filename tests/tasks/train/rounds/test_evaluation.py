import json

import pytest

from tasks.train.rounds.curve import learning_curve
from tasks.train.rounds.evaluation import Answer, Evaluation, EvaluationConfig, evaluate
from tasks.train.rounds.report import final_rates


def answer(task, score, kind="spell", greedy=False, tokens=10, target=-1):
    return Answer(kind, task, greedy, score, tokens, target)


def test_figures_are_per_kind_and_tell_sampled_from_greedy():
    answers = [
        answer("a", 1.0), answer("a", 0.0), answer("b", 1.0), answer("b", 1.0),
        answer("a", 0.0, greedy=True), answer("b", 1.0, greedy=True),
        answer("c", 1.0, kind="sort"), answer("c", 0.0, kind="sort", greedy=True),
    ]  # fmt: skip
    found = evaluate(7, 12.5, answers)
    spell = found.kinds["spell"]
    assert (spell.tasks, spell.unscored) == (2, 0)
    assert spell.sampled.mean == 0.75
    assert {k: estimate.mean for k, estimate in spell.passed.items()} == {1: 0.75, 2: 1.0}
    assert spell.greedy.mean == 0.5
    assert found.kinds["sort"].sampled.mean == 1.0
    assert Evaluation.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_sample_without_a_score_is_neither_right_nor_wrong():
    answers = [
        answer("a", 1.0),
        answer("a", None),
        answer("b", None),
        answer("a", 1.0, greedy=True),
    ]
    rates = evaluate(0, 0.0, answers).kinds["spell"]
    assert (rates.tasks, rates.unscored, rates.sampled.mean) == (1, 2, 1.0)


def test_what_was_set_aside_is_counted_and_has_no_length():
    answers = [answer("a", 1.0, tokens=8, target=10), answer("b", None, tokens=None, target=10),
               answer("a", 1.0, greedy=True)]  # fmt: skip
    rates = evaluate(0, 0.0, answers).kinds["spell"]
    assert (rates.tasks, rates.unscored, rates.tokens, rates.length_error) == (1, 1, 8.0, 2.0)


@pytest.mark.parametrize("greedy", [False, True])
def test_a_kind_without_any_score_is_left_out_and_counted(greedy):
    """Of the sampled answers or of the greedy ones: no verifier could be run, say."""
    answers = [
        answer("a", None, greedy=greedy), answer("b", None, greedy=greedy),
        answer("a", 1.0, greedy=not greedy), answer("b", None, greedy=not greedy),
        answer("c", 1.0, kind="sort"), answer("c", 1.0, kind="sort", greedy=True),
    ]  # fmt: skip
    found = evaluate(3, 1.0, answers)
    assert list(found.kinds) == ["sort"]
    assert found.left_out == {"spell": 3}
    assert Evaluation.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert learning_curve([found], "run x").count("sort") == 2


def test_no_answer_with_a_score_is_an_evaluation_without_figures():
    found = evaluate(0, 0.0, [answer("a", None), answer("a", None, greedy=True)])
    assert (found.kinds, found.left_out) == ({}, {"spell": 2})
    assert "<svg" in learning_curve([found], "run x")


def test_the_result_of_a_run_is_of_the_kinds_that_were_measured():
    both = [answer(task, 1.0, kind, g) for task, kind in (("a", "spell"), ("c", "sort"))
            for g in (False, True)]  # fmt: skip
    one = [answer("a", 0.0), answer("a", 0.0, greedy=True), answer("c", None, "sort")]
    rates = final_rates([evaluate(v, v, given) for v, given in ((0, both), (1, one), (2, both))])
    assert rates["spell"]["sampled"] == 0.5
    assert rates["sort"]["sampled"] == 1.0  # of the version that has it
    assert list(final_rates([evaluate(0, 0, one), evaluate(1, 1, both)])) == ["spell"]


def test_figures_have_the_names_of_metrics():
    answers = [
        answer("a", 1.0), answer("a", 0.0), answer("b", 1.0), answer("b", 1.0),
        answer("a", 0.0, greedy=True), answer("b", 1.0, greedy=True),
    ]  # fmt: skip
    assert evaluate(7, 12.5, answers).figures(2) == {
        "eval/spell/avg@2": 0.75, "eval/spell/greedy": 0.5,
        "eval/spell/pass@1": 0.75, "eval/spell/pass@2": 1.0,
    }  # fmt: skip


def test_part_marks_do_not_count_as_solved():
    answers = [answer("a", 0.9), answer("a", 1.0, greedy=True)]
    assert evaluate(0, 0.0, answers).kinds["spell"].sampled.mean == 0.0


def test_the_length_error_is_of_sampled_answers_with_a_target():
    answers = [
        answer("a", 1.0, tokens=10, target=16), answer("b", 1.0, tokens=20, target=16),
        answer("a", 1.0, tokens=99, target=16, greedy=True), answer("b", 0.0, greedy=True),
    ]  # fmt: skip
    assert evaluate(0, 0.0, answers).kinds["spell"].length_error == 5.0


def test_the_first_and_the_last_version_are_always_measured():
    config = EvaluationConfig(every=10)
    assert [v for v in range(26) if config.due(v, 25)] == [0, 10, 20, 25]


def test_the_curve_shows_every_kind_and_does_not_change_from_call_to_call():
    points = [
        evaluate(v, v, [answer("a", 1.0), answer("a", 0.0, greedy=True),
                        answer("c", 0.0, kind="sort"), answer("c", 1.0, "sort", greedy=True)])
        for v in (0, 10)
    ]  # fmt: skip
    image = learning_curve(points, "run x")
    assert image == learning_curve(points, "run x")
    for text in ("<svg", "spell", "sort, greedy", "run x"):
        assert text in image
    assert "<script" not in image
