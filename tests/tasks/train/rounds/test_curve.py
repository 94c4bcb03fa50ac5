"""The learning curve is valid SVG, and its axis has few round numbers."""

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from tasks.train.rounds.curve import MOST_TICKS, learning_curve, ticks
from tasks.train.rounds.evaluation import Answer, evaluate


def measured(version, kinds, score):
    return evaluate(
        version,
        1.0,
        [Answer(kind, "a", greedy, score, 3, -1) for kind in kinds for greedy in (False, True)],
    )


@pytest.mark.parametrize("last", [1, 2, 8, 9, 10, 17, 18, 50, 99, 1000, 12345, 10**9])
def test_ticks_are_few_and_even(last):
    found = ticks(last)
    assert found[0] == 0 and last // 3 < found[-1] <= last and len(found) <= MOST_TICKS
    assert len({after - before for before, after in pairwise(found)}) == 1


def test_each_kind_has_a_band_two_lines_and_its_points():
    evaluations = [measured(0, ["sort"], 0.0), measured(10, ["sort", "<&>"], 1.0)]
    image = learning_curve(evaluations, "run <&>")
    svg = ElementTree.fromstring(image)
    kinds = {part.tag.rpartition("}")[2] for part in svg}
    assert kinds == {"rect", "path", "text", "polygon", "polyline", "circle"}
    lines = [part.get("points") for part in svg if part.tag.endswith("polyline")]
    assert lines[2:] == ["60.00,400.00 785.00,40.00"] * 2
    assert len([part for part in svg if part.tag.endswith("circle")]) == 3
    words = {part.text for part in svg.iter() if part.tag.endswith("text")}
    assert {"run <&>", "sort", "sort, greedy", "<&>", "<&>, greedy", "10"} <= words
    assert learning_curve(evaluations, "run <&>") == image


def test_before_anything_is_measured_there_are_only_axes():
    assert "polyline" not in learning_curve([], "r")
