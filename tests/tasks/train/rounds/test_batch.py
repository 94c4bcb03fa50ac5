import random

import pytest

from tasks.train.rounds.batch import StepBatch
from tasks.train.rounds.config import RoundsConfig
from tasks.train.rounds.errors import StepStuck

CONFIG = RoundsConfig(groups_per_job=4, groups_per_step=8, max_jobs_per_step=6)


def batch(share=1.0):
    return StepBatch(3, CONFIG, expected_share=share)


def test_as_many_jobs_go_out_as_the_expected_share_needs():
    assert batch(share=1.0).to_issue() == [0, 1]
    assert batch(share=0.5).to_issue() == [0, 1, 2, 3]
    asked = batch(share=0.5)
    asked.to_issue()
    assert asked.to_issue() == []


def test_more_jobs_go_out_when_groups_teach_nothing():
    asked = batch()
    asked.to_issue()
    asked.accept(0, 4)
    asked.accept(1, 1)
    assert asked.selected() is None
    assert asked.to_issue() == [2, 3]
    asked.accept(2, 3)
    assert asked.selected() == [0, 1, 2]
    assert asked.to_issue() == []


def test_the_choice_does_not_depend_on_the_order_of_arrival():
    useful = [3, 0, 2, 4, 4, 4]
    for seed in range(20):
        asked = batch()
        order = list(range(6))
        random.Random(seed).shuffle(order)
        chosen = None
        for number in order:
            asked.accept(number, useful[number])
            if chosen is None:
                chosen = asked.selected()
        assert asked.selected() == [0, 1, 2, 3]
        assert chosen == [0, 1, 2, 3], "a batch was full before its jobs were there"


def test_a_job_that_comes_twice_counts_once():
    asked = batch()
    asked.accept(0, 4)
    asked.accept(0, 4)
    assert asked.selected() is None


def test_a_step_that_cannot_be_filled_says_so():
    asked = batch()
    with pytest.raises(StepStuck, match="6 jobs gave 0 groups"):
        while True:
            for number in asked.to_issue():
                asked.accept(number, 0)


def test_a_gap_that_an_earlier_process_left_is_given_out_again():
    asked = batch()
    asked.accept(0, 1)
    asked.accept(2, 4)
    assert 1 in asked.to_issue()
    asked.accept(1, 3)
    assert asked.selected() == [0, 1, 2]


def test_a_job_that_is_taken_back_goes_out_again():
    asked = batch()
    asked.to_issue()
    asked.accept(0, 4)
    asked.accept(1, 4)
    assert asked.selected() == [0, 1]
    asked.forget(0)
    assert asked.selected() is None
    assert asked.to_issue() == [0]
