"""Length targets and over-long samples."""

import pytest
from pydantic import ValidationError

from tasks.train.objective.config import LengthConfig
from tasks.train.objective.errors import BadLength
from tasks.train.objective.lengths import (
    instruction,
    overlong_penalty,
    shaped_reward,
)

LONG = (2000, 4000, 6000, 8000, 10_000)


@pytest.mark.parametrize(
    ("task", "target", "tokens", "reward"),
    [
        (1, 4000, 5000, 0.7),
        (0, 4000, 5000, -0.3),
        (1, 10_000, 12_000, 0.4),
        (1, 10_000, 2000, -1.4),
    ],
)
def test_exact_target_at_the_published_price_of_a_token(
    task: float, target: int, tokens: int, reward: float
) -> None:
    value, penalty = shaped_reward(task, tokens, target, LengthConfig(reward="exact", targets=LONG))
    assert value == pytest.approx(reward)
    assert penalty == pytest.approx(task - reward)


@pytest.mark.parametrize(
    ("tokens", "factor"), [(4000, 0.5), (3000, 0.8), (2000, 1.0), (5000, 0.2), (9000, 0.0)]
)
def test_max_rewards_what_is_shorter(tokens: int, factor: float) -> None:
    config = LengthConfig(reward="max", targets=LONG)
    assert shaped_reward(1.0, tokens, 4000, config) == pytest.approx((factor, factor))
    assert shaped_reward(0.5, tokens, 4000, config)[0] == pytest.approx(factor / 2)


def test_clip_ends_at_the_target() -> None:
    config = LengthConfig(reward="clip", targets=(20,))
    rewards = [shaped_reward(0.7, tokens, 20, config) for tokens in (0, 19, 20, 21)]
    assert rewards == [(0.7, 1.0), (0.7, 1.0), (0.7, 1.0), (0.0, 0.0)]


def test_no_length_reward_leaves_the_score_alone() -> None:
    assert shaped_reward(0.25, 10**6, None, LengthConfig()) == (0.25, 0.0)


@pytest.mark.parametrize(
    ("tokens", "penalty"), [(0, 0), (15, 0), (16, 0), (18, -0.5), (20, -1), (21, -1), (99, -1)]
)
def test_soft_penalty_starts_before_the_limit(tokens: int, penalty: float) -> None:
    assert overlong_penalty(tokens, max_tokens=20, cache=4) == penalty


def test_the_instruction_names_the_target() -> None:
    assert instruction(4000, LengthConfig()) == (" Think for 4000 tokens before giving a response.")


def test_lengths_out_of_range_are_named() -> None:
    config = LengthConfig(reward="exact", targets=(10, 20))
    with pytest.raises(BadLength, match=r"target is 15; allowed: one of \[10, 20\]"):
        shaped_reward(1.0, 3, 15, config)
    with pytest.raises(BadLength, match="target is None"):
        shaped_reward(1.0, 3, None, config)
    with pytest.raises(BadLength, match="tokens is -1"):
        shaped_reward(1.0, -1, 10, config)
    with pytest.raises(BadLength, match="cache is 5; allowed: 1 to max_tokens = 4"):
        overlong_penalty(3, max_tokens=4, cache=5)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"reward": "exact"}, "Set both or neither"),
        ({"targets": (3,)}, "Set both or neither"),
        ({"reward": "clip", "targets": (0,)}, "1 or more"),
        ({"overlong": "penalty"}, "one of 1 or more"),
        ({"overlong_cache": 3}, "belongs to the penalty"),
        ({"instruction": "Be short."}, "has no {target}"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        LengthConfig(**options)
