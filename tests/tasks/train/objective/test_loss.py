"""The policy loss on small inputs whose values are known."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from tasks.train.objective import LossTerms, ObjectiveConfig, policy_loss
from tasks.train.objective.aggregation import normaliser
from tasks.train.objective.errors import BadNormaliser, MisshapenInput, MissingInput
from tasks.train.objective.loss import KL_BOUND, k3
from tasks.train.objective.metrics import by_group, summarise

NAN, INF = float("nan"), float("inf")


def make_config(**changes: Any) -> ObjectiveConfig:
    return ObjectiveConfig(**({"kl_coef": 0.0, "correction": "none"} | changes))


def loss_of(
    logprobs: Sequence[float] | torch.Tensor,
    divisor: float = 1.0,
    old: Sequence[float] | None = None,
    behaviour: Sequence[float] | None = None,
    reference: Sequence[float] | None = None,
    advantages: Sequence[float] | None = None,
    mask: Sequence[int] | None = None,
    sequences: Sequence[int] | None = None,
    **changes: Any,
) -> LossTerms:
    """The loss of one row; what is not given is on policy, advantage 1, one sequence."""
    now = torch.as_tensor(logprobs, dtype=torch.float32)
    size = len(now)
    plain = now.detach()
    old_logprobs = plain if old is None else torch.tensor(old)
    return policy_loss(
        now,
        old_logprobs,
        old_logprobs if behaviour is None else torch.tensor(behaviour),
        None if reference is None else torch.tensor(reference),
        None,
        torch.ones(size) if advantages is None else torch.tensor(advantages),
        torch.ones(size, dtype=torch.bool) if mask is None else torch.tensor(mask).bool(),
        torch.zeros(size, dtype=torch.long) if sequences is None else torch.tensor(sequences),
        divisor,
        make_config(**changes),
    )


def totals(terms: LossTerms) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums and maxima over all tokens of a row."""
    one = torch.zeros(len(terms.figures), dtype=torch.long)
    sums, maxima = by_group(terms.figures, one, 1)
    return sums[0], maxima[0]


@pytest.mark.parametrize(
    ("ratio", "advantage", "plain", "two_sided"),
    [
        (10, -1, 10, 4),
        (10, 1, -1.2, -1.2),
        (3, -1, 3, 3),
        (0.5, -1, 0.8, 0.8),
        (0.5, 1, -0.5, -0.5),
    ],
)
def test_two_sided_clip(ratio: float, advantage: float, plain: float, two_sided: float) -> None:
    row = {"old": [-math.log(ratio)], "advantages": [float(advantage)]}
    assert loss_of([0.0], delta=None, **row).loss.item() == pytest.approx(plain)
    assert loss_of([0.0], delta=4.0, **row).loss.item() == pytest.approx(two_sided)


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [(1.3, 1, False), (1.3, -1, True), (0.7, -1, False), (0.7, 1, True), (4.1, -1, False)],
)
def test_a_clipped_token_has_no_gradient(ratio: float, advantage: float, moves: bool) -> None:
    now = torch.tensor([math.log(ratio)], requires_grad=True)
    loss_of(now, old=[0.0], advantages=[float(advantage)]).loss.backward()
    assert now.grad is not None and (now.grad.item() != 0) == moves


def test_the_divergence_is_added() -> None:
    low, high = 0.0, 2.0
    for _ in range(60):  # d with k3(d) = 0.5
        middle = (low + high) / 2
        low, high = (low, middle) if math.exp(middle) - middle - 1 > 0.5 else (middle, high)
    row = {"advantages": [-1.0], "reference": [low], "kl_coef": 0.1}
    assert loss_of([0.0], **row).loss.item() == pytest.approx(1.05, abs=1e-6)


def test_the_divergence_has_a_gradient_and_is_never_negative() -> None:
    now = torch.tensor([-1.0, -2.0], requires_grad=True)
    row = {"advantages": [0.0, 0.0], "reference": [-0.5, -2.0], "kl_coef": 1.0}
    # towards the reference, and 0 where they agree: 1 - exp(d) of k3, -d of the divergence itself
    for unbiased, slope in ((False, 1 - math.exp(0.5)), (True, -0.5)):
        now.grad = None
        terms = loss_of(now, 2.0, kl_unbiased=unbiased, **row)
        terms.loss.backward()
        assert terms.loss.item() * 2 == pytest.approx(math.exp(0.5) - 1.5)
        assert terms.loss.item() * 2 == pytest.approx(0.14872, abs=1e-5)
        assert now.grad is not None and now.grad.tolist() == pytest.approx([slope / 2, 0])
    spread = torch.linspace(-60, 60, 1001)
    values = k3(spread, torch.zeros_like(spread))
    assert values.min() >= 0 and values.max() <= KL_BOUND


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("token_mean", 2.0), ("sequence_mean", 2.5), ("sequence_sum", 3.0)],
)
def test_aggregation(aggregation: str, expected: float) -> None:
    # token losses [[1, 1], [4, 0]], the last one masked; the loss of a token is -advantage
    row = {"advantages": [-1.0, -1, -4, 0], "mask": [1, 1, 1, 0], "sequences": [7, 7, 9, 9]}
    divisor = normaliser([2, 1], aggregation)
    terms = loss_of([0.0] * 4, divisor, aggregation=aggregation, **row)
    assert terms.loss.item() == expected


def test_ranks_share_one_divisor() -> None:
    divisor = normaliser([1, 3], "token_mean")
    first = loss_of([0.0], divisor, advantages=[-2.0])
    second = loss_of([0.0] * 3, divisor, advantages=[-1.0] * 3)
    assert first.loss.item() + second.loss.item() == pytest.approx(1.25)


def test_the_divisor_is_a_maximum() -> None:
    row = {"advantages": [-2.0] * 5}
    assert loss_of([0.0] * 5, normaliser([5], "token_mean"), **row).loss.item() == 2.0
    for aggregation in ("token_mean", "sequence_mean", "sequence_sum"):
        assert normaliser([], aggregation) == normaliser([0, 0], aggregation) == 1.0
        empty = loss_of([0.0] * 5, 1.0, mask=[0] * 5, aggregation=aggregation, **row)
        assert empty.loss.item() == 0.0


def test_masked_samples_are_not_in_the_divisor() -> None:
    lengths, trained = [2, 8], [True, False]
    divisor = normaliser(
        (n if use else 0 for n, use in zip(lengths, trained, strict=True)), "token_mean"
    )
    row = {"advantages": [-1.0] * 10, "mask": [1] * 2 + [0] * 8, "sequences": [0] * 2 + [1] * 8}
    assert loss_of([0.0] * 10, divisor, **row).loss.item() == 1.0


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("correction", ["none", "tis", "icepop", "geometric"])
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_what_stands_outside_the_mask_reaches_nothing(
    value: float, correction: str, aggregation: str
) -> None:
    now = torch.tensor([-0.5, value, value], requires_grad=True)
    terms = loss_of(
        now,
        old=[-0.5, value, 0.0],
        behaviour=[-0.5, value, 0.0],
        reference=[-0.5, value, 0.0],
        advantages=[-1.0, value, value],
        mask=[1, 0, 0],
        kl_coef=0.1,
        correction=correction,
        aggregation=aggregation,
    )
    terms.loss.backward()
    assert terms.loss.item() == 1.0
    assert now.grad is not None and now.grad.tolist() == [1.0, 0.0, 0.0]
    assert all(torch.isfinite(each).all() for each in totals(terms))


@pytest.mark.parametrize("correction", ["none", "tis", "icepop", "geometric"])
def test_a_row_without_loss_tokens_is_finite_and_has_no_gradient(correction: str) -> None:
    now = torch.tensor([NAN, -1.0], requires_grad=True)
    row = {"reference": [0.0, 0.0], "kl_coef": 0.1, "correction": correction}
    terms = loss_of(now, mask=[0, 0], aggregation="sequence_mean", **row)
    terms.loss.backward()
    assert terms.loss.item() == 0.0
    assert now.grad is not None and now.grad.tolist() == [0.0, 0.0]
    assert set(summarise(*totals(terms)).values()) == {0.0}


@pytest.mark.parametrize("advantage", [-1.0, 1.0])
@pytest.mark.parametrize("distance", [-500.0, 500.0])
def test_absurd_ratios_leave_loss_and_gradient_finite(advantage: float, distance: float) -> None:
    for delta in (4.0, None):
        now = torch.tensor([distance, -1.0], requires_grad=True)
        terms = loss_of(
            now,
            old=[0.0, -1.0],
            behaviour=[-distance, -1.0],
            reference=[0.0, -1.0],
            advantages=[advantage, 1.0],
            kl_coef=0.1,
            delta=delta,
            correction="tis",
        )
        terms.loss.backward()
        assert math.isfinite(terms.loss.item())
        assert now.grad is not None and torch.isfinite(now.grad).all()
        assert all(torch.isfinite(each).all() for each in totals(terms))


def weights(correction: str, log_ratios: Sequence[float], sequences: Sequence[int]) -> list[float]:
    """Correction weights, read off the gradient of a sum of ratios."""
    now = torch.zeros(len(log_ratios), requires_grad=True)
    row = {"old": [0.0] * len(now), "behaviour": [-each for each in log_ratios]}
    loss_of(now, sequences=sequences, correction=correction, **row).loss.backward()
    assert now.grad is not None
    return (-now.grad).tolist()


def test_corrections() -> None:
    ratios = [0.3, 0.6, 1.0, 1.9, 2.5]
    logs, one = [math.log(ratio) for ratio in ratios], [0] * 5
    assert weights("none", logs, one) == [1.0] * 5
    assert weights("tis", logs, one) == pytest.approx([0.3, 0.6, 1.0, 1.9, 2.0])
    assert weights("icepop", logs, one) == pytest.approx([0, 0.6, 1.0, 1.9, 0])


def test_geometric_correction_keeps_or_drops_whole_sequences() -> None:
    step = math.log(1.005)
    kept = [step, step, -step]
    drifted = [math.log(1.02)] * 2
    balanced = [0.3, -0.3]  # the geometric mean is 1: single tokens are not looked at ...
    outlier = [math.log(200), -math.log(200)]  # ... but for outliers
    rows = [kept, drifted, balanced, outlier]
    sequences = [index for index, row in enumerate(rows) for _ in row]
    assert weights("geometric", [each for row in rows for each in row], sequences) == [
        *[1.0] * 3, *[0.0] * 2, *[1.0] * 2, *[0.0] * 2
    ]  # fmt: skip


def test_order_and_cut_of_the_sequences_change_nothing() -> None:
    generator = torch.Generator().manual_seed(5)
    lengths, size = [4, 1, 6, 3, 5], 19
    values = torch.randn(4, size, generator=generator) * 0.3 - 1
    ids = torch.repeat_interleave(torch.tensor([30, 2, 11, 5, 8]), torch.tensor(lengths))
    advantages = torch.repeat_interleave(torch.tensor([1.0, -1, 0.5, -2, 1]), torch.tensor(lengths))
    mask = torch.rand(size, generator=generator) > 0.2
    for aggregation in ("token_mean", "sequence_mean", "sequence_sum"):
        config = ObjectiveConfig(kl_coef=0.1, correction="icepop", aggregation=aggregation)
        divisor = normaliser([int(mask[ids == each].sum()) for each in ids.unique()], aggregation)

        def loss(index: torch.Tensor) -> LossTerms:
            now, old, behaviour, reference = values[:, index]
            rest = advantages[index], mask[index], ids[index], divisor, config  # noqa: B023
            return policy_loss(now, old, behaviour, reference, None, *rest)

        whole = loss(torch.arange(size))
        pieces = [loss((ids == each).nonzero()[:, 0]) for each in (5, 30, 8, 11, 2)]
        total = sum(piece.loss.item() for piece in pieces)
        assert total == pytest.approx(whole.loss.item(), abs=1e-6)
        sums, maxima = zip(*(totals(piece) for piece in pieces), strict=True)
        torch.testing.assert_close(torch.stack(sums).sum(0), totals(whole)[0])
        torch.testing.assert_close(torch.stack(maxima).amax(0), totals(whole)[1])


def test_metrics_count_what_the_bounds_did() -> None:
    ratios = [0.7, 0.7, 1.3, 1.3, 5.0, 1.0]
    terms = loss_of(
        [math.log(ratio) for ratio in ratios],
        old=[0.0] * 6,
        behaviour=[0.0] * 5 + [-1.0],
        reference=[math.log(ratio) for ratio in ratios],
        advantages=[-1.0, 1, 1, -1, -1, 0],
        correction="icepop",
    )
    figures = summarise(*totals(terms))
    assert figures["tokens"] == 6
    assert [round(6 * figures[f"clip_{name}"]) for name in ("low", "high", "delta")] == [1, 1, 1]
    assert figures["clip_fraction"] == pytest.approx(3 / 6)
    assert figures["ratio"] == pytest.approx(sum(ratios) / 6)
    assert figures["ratio_max"] == pytest.approx(5.0)
    assert figures["kl"] == figures["entropy"] == 0.0
    assert figures["dropped"] == pytest.approx(1 / 6)
    assert figures["mismatch_kl_max"] == pytest.approx(math.e - 2)
    assert figures["mismatch_kl"] == pytest.approx((math.e - 2) / 6)
    assert figures["mismatch_ratio_max"] == pytest.approx(math.e)
    spread = math.sqrt(5) / 6 * (math.e - 2)
    assert figures["mismatch_kl_std"] == pytest.approx(spread)
    # masked: two bad samples and a good one by the clip, one of neither by the correction
    assert figures["masked"] == pytest.approx(4 / 6)
    assert figures["masked_advantage_pos"] == pytest.approx(1 / 4)
    assert figures["masked_advantage_neg"] == pytest.approx(2 / 4)
    update = sum(ratio - math.log(ratio) - 1 for ratio in ratios) / 6
    assert figures["update_kl"] == pytest.approx(update)


def test_metrics_of_groups_are_those_of_their_tokens_alone() -> None:
    row = {"old": [0.0] * 4, "behaviour": [-1.0, 0.0, 0.5, 0.0], "advantages": [1.0, -1, 1, -1]}
    groups = [2, 0, 2, 0]
    figures = loss_of([0.1, 0.2, 0.3, 0.4], **row).figures
    sums, maxima = by_group(figures, torch.tensor(groups), 3)
    for group in (0, 1, 2):
        own = figures[[at for at, each in enumerate(groups) if each == group]]
        alone = by_group(own, torch.zeros(len(own), dtype=torch.long), 1)
        assert summarise(sums[group], maxima[group]) == summarise(alone[0][0], alone[1][0])
    assert set(summarise(sums[1], maxima[1]).values()) == {0.0}
    assert summarise(sums[2], maxima[2])["mismatch_kl"] == pytest.approx(
        (math.e - 2 + math.exp(-0.5) - 0.5) / 2
    )


def test_inputs_that_do_not_fit_are_named() -> None:
    with pytest.raises(MisshapenInput, match=r"old_logprobs has shape \(1,\); it must be \(2,\)"):
        loss_of([0.0, 0.0], old=[0.0])
    with pytest.raises(MisshapenInput, match="logprobs has shape"):
        loss_of(torch.zeros(2, 3), mask=[1, 1])
    with pytest.raises(MissingInput, match=r"kl_coef = 0\.1 needs reference_logprobs"):
        loss_of([0.0], kl_coef=0.1)
    with pytest.raises(MissingInput, match=r"entropy_coef = 0\.1 needs entropy"):
        loss_of([0.0], entropy_coef=0.1)
    for divisor in (0.0, -1.0, NAN, INF):
        with pytest.raises(BadNormaliser):
            loss_of([0.0], divisor)


def test_delta_must_lie_above_the_upper_clip() -> None:
    with pytest.raises(ValidationError, match=r"delta = 1\.2 must be above 1 \+ clip_high = 1\.2"):
        ObjectiveConfig(delta=1.2, clip_high=0.2)
    assert ObjectiveConfig(delta=None, clip_high=9.0).delta is None
    unbounded = ObjectiveConfig.model_validate({"delta": "none", "clip_high": 9.0})
    assert unbounded.delta is None
    assert ObjectiveConfig.model_validate_json(unbounded.model_dump_json()) == unbounded
