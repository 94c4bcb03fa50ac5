"""Decoding: what ends a completion, what a batch changes, what the sink gets."""

from collections.abc import Callable, Iterator
from math import ceil
from typing import Any

import pytest
import torch

from infra.inference.errors import EngineClosed
from infra.inference.protocol import Completion, Request, SamplingParams
from infra.inference.transformers_engine import TransformersEngine
from infra.models.registry import materialise
from tests.infra.inference.conftest import Pieces
from toploc.sampling import SamplingRule, sample

Make = Callable[..., Request]
TEXTS = ["a", "what is 3 + 4?", "longer than the others, so that there is padding", "b", "xyz " * 9]


def batch_of(make_request: Make, count: int = 12) -> list[Request]:
    return [make_request(TEXTS[i % len(TEXTS)], seed=1000 + i) for i in range(count)]


def same(one: list[Completion], other: list[Completion]) -> bool:
    return [(c.trace_id, c.output_ids, c.logprobs, c.text) for c in one] == [
        (c.trace_id, c.output_ids, c.logprobs, c.text) for c in other
    ]


def test_same_batch_gives_same_tokens(engine: TransformersEngine, make_request: Make) -> None:
    batch = batch_of(make_request)
    params = SamplingParams(max_tokens=60)
    first = engine.generate(batch, params)
    assert same(first, engine.generate(batch, params))
    assert [c.trace_id for c in first] == [r.trace_id for r in batch]
    assert len({tuple(c.output_ids) for c in first}) > 6


@pytest.mark.parametrize("params", [
    SamplingParams(temperature=0.0, max_tokens=24),
    SamplingParams(temperature=1.0, max_tokens=24),
    SamplingParams(temperature=0.7, top_p=0.9, top_k=40, min_p=0.02, max_tokens=24),
], ids=["greedy", "plain", "filtered"])  # fmt: skip
def test_tokens_do_not_depend_on_the_batch(
    engine: TransformersEngine, make_request: Make, params: SamplingParams
) -> None:
    """Seeds and positions decide; a random model has no near ties that rounding would tip."""
    batch = batch_of(make_request, 6)
    together = engine.generate(batch, params)
    alone = [engine.generate([request], params)[0] for request in batch]
    turned = engine.generate(batch[::-1], params)[::-1]
    assert [c.output_ids for c in together] == [c.output_ids for c in alone]
    assert [c.output_ids for c in together] == [c.output_ids for c in turned]


def test_samples_of_one_prompt_are_what_each_gives_alone(
    engine: TransformersEngine, make_request: Make
) -> None:
    """A prompt that a batch holds several times is read once."""
    batch = [make_request(text, seed) for seed in range(3) for text in ("a", "much longer", "b")]
    params = SamplingParams(max_tokens=12)
    done = engine.generate(batch, params)
    alone = [engine.generate([request], params)[0] for request in batch]
    assert [c.output_ids for c in done] == [c.output_ids for c in alone]
    assert len({tuple(c.output_ids) for c in done}) == len(batch)


@pytest.fixture(scope="module")
def nano() -> Iterator[TransformersEngine]:
    """A trained policy, whose samples of one prompt have much in common."""
    loaded = TransformersEngine(materialise("tracemill/nano-rl"), "nano", "r0")
    yield loaded
    loaded.close()


def test_what_samples_have_in_common_is_computed_once(
    nano: TransformersEngine, pieces: Pieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [
        f"What does this word spell backward? {word}" for word in ("apple", "stones", "so", "x")
    ]
    prompts = [tuple(nano.render([{"role": "user", "content": text}])[0]) for text in asked]
    batch = [
        Request(f"{number}/{seed}", prompt, seed)
        for seed in range(24)
        for number, prompt in enumerate(prompts)
    ]
    params = SamplingParams(max_tokens=40)
    alone = [nano.generate([request], params)[0] for request in batch]
    rows: list[int] = []
    body = nano._loaded().body

    def counting(**given: Any) -> Any:
        rows.append(given["input_ids"].shape[0])
        return body(**given)

    monkeypatch.setattr(nano._loaded(), "body", counting)
    done = nano.generate(batch, params, pieces)
    monkeypatch.undo()
    assert [c.output_ids for c in done] == [c.output_ids for c in alone]
    assert all(
        abs(one - other) < 1e-4
        for ours, theirs in zip(done, alone, strict=True)
        for one, other in zip(ours.logprobs, theirs.logprobs, strict=True)
    )
    read = {
        (request.prompt_ids, *completion.output_ids[:count])
        for request, completion in zip(batch, done, strict=True)
        for count in range(len(completion.output_ids))
    }
    assert sum(rows) == len(read)
    assert len(read) < 0.6 * sum(len(c.output_ids) for c in done)
    hidden = nano.prefill([(r.prompt_ids, c.output_ids) for r, c in zip(batch, done, strict=True)])
    for request, (expected, _) in zip(batch, hidden, strict=True):
        given = pieces.by_trace[request.trace_id]
        assert [start for start, _ in given] == list(range(0, len(expected), 32))
        found = torch.cat([states for _, states in given])
        torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


def test_sampling_uses_the_seed_of_the_trace_and_the_output_position(
    engine: TransformersEngine, make_request: Make
) -> None:
    """A verifier repeats the draws from prefill logits alone."""
    params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=40)
    batch = batch_of(make_request, 4)
    done = engine.generate(batch, params)
    prefilled = engine.prefill(
        [(r.prompt_ids, c.output_ids) for r, c in zip(batch, done, strict=True)]
    )
    rule = SamplingRule(temperature=0.8, top_p=0.95, top_k=0, min_p=0.0)
    for request, completion, (_, logits) in zip(batch, done, prefilled, strict=True):
        count = len(completion.output_ids)
        ids, logprobs = sample(
            logits, torch.full((count,), request.seed), torch.arange(count), rule
        )
        assert ids.tolist() == completion.output_ids
        assert torch.allclose(logprobs, torch.tensor(completion.logprobs), atol=1e-3)


def test_end_token_is_in_the_ids_and_not_in_the_text(
    engine: TransformersEngine, make_request: Make
) -> None:
    batch = [make_request("a", seed) for seed in range(64)]
    done = engine.generate(batch, SamplingParams(max_tokens=120))
    stopped = [c for c in done if c.finish_reason == "stop"]
    cut = [c for c in done if c.finish_reason == "length"]
    assert stopped and cut
    assert all(c.status == "ok" and c.error is None for c in done)
    for completion in stopped:
        assert completion.output_ids.index(1) == len(completion.output_ids) - 1
        assert "<|end|>" not in completion.text
    for completion in cut:
        assert len(completion.output_ids) == 120 and 1 not in completion.output_ids
    assert all(len(c.logprobs) == len(c.output_ids) and max(c.logprobs) <= 0 for c in done)


def test_text_starts_with_what_the_template_opened(
    engine: TransformersEngine, make_request: Make
) -> None:
    ids, opened = engine.render([{"role": "user", "content": "a"}])
    assert opened == "<think>\n"
    done = engine.generate([Request("t", tuple(ids), 3)], SamplingParams(max_tokens=5))
    assert done[0].text.startswith("<think>\n")


def test_stop_string_ends_a_completion(engine: TransformersEngine, make_request: Make) -> None:
    request = make_request("b", 11)
    free = engine.generate([request], SamplingParams(max_tokens=80))[0]
    body = free.text.removeprefix("<think>\n")
    stop = next(body[i : i + 2] for i in range(5, 60) if body[i : i + 2].isascii())
    held = engine.generate([request], SamplingParams(max_tokens=80, stop=("never seen", stop)))[0]
    assert held.finish_reason == "stop"
    assert held.text == "<think>\n" + body[: body.index(stop)]
    assert held.output_ids == free.output_ids[: len(held.output_ids)]
    assert len(held.output_ids) < len(free.output_ids)


def test_too_long_prompts_do_not_fail_the_batch(
    engine: TransformersEngine, make_request: Make
) -> None:
    full = Request("full", (10,) * 256, 1)
    nearly = Request("nearly", (10,) * 253, 2)
    fine = make_request("a", 3)
    done = engine.generate([full, fine, nearly], SamplingParams(max_tokens=30))
    assert [c.status for c in done] == ["prompt_too_long", "ok", "ok"]
    assert done[0].finish_reason == "error" and done[0].output_ids == []
    assert "256" in (done[0].error or "")
    assert len(done[2].output_ids) <= 3, "max_tokens is cut to the context that is left"


def test_bad_token_ids_fail_their_own_request_only(
    engine: TransformersEngine, make_request: Make
) -> None:
    batch = [Request("big", (5, 9999), 1), make_request("a", 2), Request("none", (), 3)]
    done = engine.generate(batch, SamplingParams(max_tokens=4))
    assert [c.status for c in done] == ["engine_error", "ok", "engine_error"]
    assert "9999" in (done[0].error or "") and done[2].finish_reason == "error"


def test_a_row_that_breaks_leaves_the_others_as_they_were(
    make_model: Callable[..., object], make_request: Make
) -> None:
    engine = TransformersEngine(make_model(), "tiny", "r0")  # type: ignore[arg-type]
    batch = [make_request("a", 1), make_request("Z", 2), make_request("b", 3)]
    params = SamplingParams(max_tokens=6)
    before = engine.generate([batch[0], batch[2]], params)
    (token,) = engine.render([{"role": "user", "content": "Z"}])[0][1:2]
    with torch.no_grad():
        engine._model.body.embed_tokens.weight[token] = float("nan")  # type: ignore[union-attr]
    done = engine.generate(batch, params)
    assert done[1].status == "engine_error" and "not finite" in (done[1].error or "")
    assert done[0].status == done[2].status == "ok"
    shared = min(len(done[0].output_ids), len(before[0].output_ids))
    assert done[0].output_ids[:shared] == before[0].output_ids[:shared]


def test_sink_gets_pieces_of_32_rows_and_a_shorter_last_one(
    engine: TransformersEngine, make_request: Make, pieces: object
) -> None:
    batch = [make_request(TEXTS[i % 5], i) for i in range(40)]
    done = engine.generate(batch, SamplingParams(max_tokens=96), pieces)  # type: ignore[arg-type]
    assert len({len(c.output_ids) for c in done}) > 5
    for completion in done:
        got = pieces.by_trace[completion.trace_id]  # type: ignore[attr-defined]
        count = len(completion.output_ids)
        assert len(got) == ceil(count / 32)
        assert [start for start, _ in got] == list(range(0, count, 32))
        assert sum(len(rows) for _, rows in got) == count
        assert all(len(rows) == 32 for _, rows in got[:-1])
        assert all(rows.dtype == torch.bfloat16 and rows.shape[1] == 128 for _, rows in got)


def test_two_requests_with_one_id_are_refused(
    engine: TransformersEngine, make_request: Make
) -> None:
    with pytest.raises(ValueError, match="same trace_id"):
        engine.generate([make_request("a", 1), make_request("a", 1)], SamplingParams())


def test_empty_batch(engine: TransformersEngine) -> None:
    assert engine.generate([], SamplingParams()) == []


def test_closed_engine_says_so(tiny_model: object) -> None:
    engine = TransformersEngine(tiny_model, "tiny", "r0")  # type: ignore[arg-type]
    engine.close()
    with pytest.raises(EngineClosed, match="load_engine"):
        engine.generate([], SamplingParams())


@pytest.mark.parametrize("bad", [{"max_tokens": 0}, {"stop": ("",)}])
def test_params_that_make_no_sense_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        SamplingParams(**bad)  # type: ignore[arg-type]
