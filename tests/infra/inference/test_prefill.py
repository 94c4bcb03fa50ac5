"""Prefill repeats what decoding computed, closely enough for proofs."""

from collections.abc import Callable

import pytest
import torch

from infra.inference.errors import BadItem
from infra.inference.protocol import Request, SamplingParams
from infra.inference.transformers_engine import TransformersEngine
from toploc import build_proofs_bytes, verify_proofs_bytes

Make = Callable[..., Request]


def hidden_of(pieces: object, trace_id: str) -> torch.Tensor:
    return torch.cat([rows for _, rows in pieces.by_trace[trace_id]])  # type: ignore[attr-defined]


def test_honest_proofs_verify_with_hardly_a_difference(
    engine: TransformersEngine, make_request: Make, pieces: object
) -> None:
    batch = [make_request("word " * (1 + i % 7), i) for i in range(12)]
    done = engine.generate(batch, SamplingParams(max_tokens=100), pieces)  # type: ignore[arg-type]
    items = [(r.prompt_ids, c.output_ids) for r, c in zip(batch, done, strict=True)]
    for completion, (hidden, logits) in zip(done, engine.prefill(items), strict=True):
        count = len(completion.output_ids)
        assert hidden.shape == (count, 128) and hidden.dtype == torch.bfloat16
        assert logits.shape == (count, 262) and logits.dtype == torch.float32
        decoded = hidden_of(pieces, completion.trace_id)
        proofs = build_proofs_bytes(decoded, 32, 128, skip_prefill=True)
        results = verify_proofs_bytes(hidden, proofs, 32, 128, skip_prefill=True)
        assert len(results) == -(-count // 32)
        assert max(r.exp_mismatches for r in results) <= 2
        assert max(r.mant_err_mean for r in results) < 0.2


def test_another_output_does_not_verify(
    engine: TransformersEngine, make_request: Make, pieces: object
) -> None:
    request = make_request("a", 5)
    params = SamplingParams(max_tokens=64)
    done = engine.generate([request], params, pieces)[0]  # type: ignore[arg-type]
    other = [(token + 7) % 250 + 6 for token in done.output_ids]
    ((hidden, _),) = engine.prefill([(request.prompt_ids, other)])
    proofs = build_proofs_bytes(hidden_of(pieces, done.trace_id), 32, 128, skip_prefill=True)
    results = verify_proofs_bytes(hidden, proofs, 32, 128, skip_prefill=True)
    assert max(r.exp_mismatches for r in results) > 38


def test_results_come_in_order_and_do_not_depend_on_padding(engine: TransformersEngine) -> None:
    items = [([9] * n, [10 + k for k in range(m)]) for n, m in ((3, 40), (50, 2), (1, 1), (4, 0))]
    together = engine.prefill(items)
    for item, (hidden, logits) in zip(items, together, strict=True):
        assert len(hidden) == len(logits) == len(item[1])
        ((alone, alone_logits),) = engine.prefill([item])
        assert torch.allclose(hidden.float(), alone.float(), atol=0.05)
        assert torch.allclose(logits, alone_logits, atol=1e-3)


def test_a_prompt_that_several_items_share_gives_what_each_gives_alone(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = ([9] * 30, [9] * 12 + [40], [7] * 30, [8])
    items = [
        (prompt, [10 + (k * m + n) % 200 for k in range(m)])
        for n, prompt in enumerate(prompts)
        for m in (1, 17, 0, 3, 40)[: 5 if n < 3 else 1]
    ]
    for budget in (10, 100, 1024):
        monkeypatch.setattr("infra.inference.prefill.PREFILL_TOKENS", budget)
        for item, (hidden, logits) in zip(items, engine.prefill(items), strict=True):
            assert len(hidden) == len(logits) == len(item[1])
            ((alone, alone_logits),) = engine.prefill([item])
            assert torch.allclose(hidden.float(), alone.float(), atol=0.05)
            assert torch.allclose(logits, alone_logits, atol=1e-3)


def test_items_that_are_the_same_are_read_once(engine: TransformersEngine) -> None:
    items = [
        ([9] * 4, [10, 11]),
        ([9] * 4, [10, 12]),
        ([9] * 4, (10, 11)),
        ([8], [10]),
        ([8], [10]),
    ]
    found = engine.prefill(items)
    assert found[0][0] is found[2][0] and found[3][1] is found[4][1]
    assert found[0][0] is not found[1][0]
    for item, (hidden, logits) in zip(items, found, strict=True):
        ((alone, alone_logits),) = engine.prefill([item])
        assert torch.allclose(hidden.float(), alone.float(), atol=0.05)
        assert torch.allclose(logits, alone_logits, atol=1e-3)


def test_more_items_than_one_pass_holds(engine: TransformersEngine) -> None:
    items = [([9, 8, 7] * 20, [11] * (i % 90 + 1)) for i in range(60)]
    assert [len(h) for h, _ in engine.prefill(items)] == [len(o) for _, o in items]


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (([5], [262]), "token id 262 is outside the vocabulary of 0 to 261"),
        (([-1], [5]), "token id -1"),
        (([], [5]), "give at least one"),
        (([5] * 200, [5] * 100), "exceed the context of 256"),
    ],
    ids=["too large", "negative", "no prompt", "too long"],
)
def test_items_that_cannot_run_are_named(
    engine: TransformersEngine, item: tuple[list[int], list[int]], reason: str
) -> None:
    with pytest.raises(BadItem, match=reason) as caught:
        engine.prefill([([5], [6]), item])
    assert caught.value.index == 1


def test_no_items(engine: TransformersEngine) -> None:
    assert engine.prefill([]) == []


@pytest.mark.parametrize("step", [1, 5, 32])
def test_reading_over_a_cache_gives_what_one_pass_gives(
    engine: TransformersEngine, step: int
) -> None:
    items = [(list(range(6, 6 + n)), list(range(40, 40 + 3 * n))) for n in (1, 4, 9)]
    for (hidden, logits), (whole, expected) in zip(
        engine.prefill(items, step), engine.prefill(items), strict=True
    ):
        assert hidden.shape == whole.shape
        torch.testing.assert_close(hidden.float(), whole.float(), rtol=0.01, atol=0.01)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
