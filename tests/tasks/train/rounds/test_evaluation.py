import json

from tasks.train.rounds.curve import learning_curve
from tasks.train.rounds.evaluation import Answer, Evaluation, EvaluationConfig, evaluate


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
