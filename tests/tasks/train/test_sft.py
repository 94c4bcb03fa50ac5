"""Supervised training: what carries loss, that it learns, that it repeats bit by bit."""

from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from tasks.train.errors import BadTrainingRow, LossNotFinite, NoTrainingData
from tasks.train.nano_tokenizer import build_tokenizer
from tasks.train.sft import (
    Example,
    SftConfig,
    backward,
    encode_rows,
    epoch_batches,
    learning_rate_at,
    micro_batches,
    render_row,
    train,
)

TOKENIZER = build_tokenizer(["<answer>", "</answer>"])


def make_row(word: str) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": f"Say {word}"}],
        "completion": f"<think>{word}</think><answer>{word}</answer>",
    }


ROWS = [make_row(word) for word in ("a", "bb", "ccc", "dog", "house", "no", "yes", "maybe")] * 8


def make_model(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(TOKENIZER),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_prompt_is_masked_and_the_opened_thought_is_not_repeated() -> None:
    (example,), _ = encode_rows(TOKENIZER, [make_row("dog")], 128)
    prompt = TOKENIZER.decode(example.ids[: example.prompt_length])
    answer = TOKENIZER.decode(example.ids[example.prompt_length :])
    assert prompt == "<|user|>Say dog<|end|><|assistant|><think>"
    assert answer == "dog</think><answer>dog</answer><|end|>"


def test_published_rows_with_the_answer_among_the_messages() -> None:
    row = make_row("dog")
    row["messages"].append({"role": "assistant", "content": row["completion"]})
    assert render_row(TOKENIZER, row) == render_row(TOKENIZER, make_row("dog"))


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [], "completion": "x"},
        {"messages": None, "completion": "x"},
        {"messages": [{"role": "assistant", "content": "x"}], "completion": "x"},
        {"messages": [{"role": "user", "content": "x"}], "completion": ""},
        {"messages": [{"role": "user", "content": "x"}], "completion": None},
    ],
)
def test_bad_rows_are_named(row: dict[str, Any]) -> None:
    with pytest.raises(BadTrainingRow, match="training row 7"):
        render_row(TOKENIZER, row, 7)


def test_long_rows_are_counted_not_cut() -> None:
    rows = [make_row("a"), make_row("a" * 200)]
    examples, too_long = encode_rows(TOKENIZER, rows, max_tokens=50)
    assert (len(examples), too_long) == (1, 1)
    with pytest.raises(NoTrainingData, match="2 rows given, 2 of them longer"):
        encode_rows(TOKENIZER, rows, max_tokens=3)
    with pytest.raises(NoTrainingData, match="0 rows given"):
        encode_rows(TOKENIZER, [], max_tokens=3)


def gradients(model: LlamaForCausalLM) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("micro_batch_size", [1, 3, 8])
def test_loss_and_gradient_are_those_of_each_example_alone(micro_batch_size: int) -> None:
    model = make_model().eval()
    examples, _ = encode_rows(TOKENIZER, ROWS[:8], 128)
    loss, tokens, _ = backward(model, examples, micro_batch_size)
    ours = gradients(model)
    model.zero_grad()
    total = torch.zeros(())
    count = 0
    for example in examples:
        ids = torch.tensor([example.ids])
        logits = model(input_ids=ids).logits[0, example.prompt_length - 1 : -1]
        target = ids[0, example.prompt_length :]
        total = total + F.cross_entropy(logits, target, reduction="sum")
        count += len(target)
    (total / count).backward()
    assert tokens == count
    assert loss == pytest.approx(total.item() / count, rel=1e-5)
    for left, right in zip(ours, gradients(model), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)


def test_of_targets_p1_c0_c1_the_completion_is_trained_from_its_first_token_on() -> None:
    """Tokens p0 p1 c0 c1: the mask of the targets is 0 1 1, not 0 0 1."""
    model, ids, mask = make_model().eval(), (1, 2, 3, 4), [0, 1, 1]
    logprobs = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    each = [-logprobs[at, target].item() for at, target in enumerate(ids[1:])]
    loss, tokens, _ = backward(model, [Example(ids, 2)], 1)
    assert tokens == sum(mask)
    assert loss == pytest.approx(sum(m * e for m, e in zip(mask, each, strict=True)) / 2, rel=1e-5)
    assert loss != pytest.approx(each[2], rel=1e-3)


def test_batches_hold_each_example_once_and_follow_the_seed() -> None:
    def epoch(seed: int) -> list[list[int]]:
        return list(epoch_batches(101, 8, np.random.Generator(np.random.Philox(seed))))

    assert sorted(chain.from_iterable(epoch(1))) == list(range(101))
    assert epoch(1) == epoch(1) != epoch(2)


def test_micro_batches_put_like_lengths_together() -> None:
    examples = [Example(tuple(range(length)), 1) for length in (9, 2, 7, 3, 8)]
    parts = micro_batches(examples, 2)
    assert [[len(example.ids) for example in part] for part in parts] == [[2, 3], [7, 8], [9]]


def test_schedules() -> None:
    cosine = SftConfig(learning_rate=1.0, warmup_steps=4)
    assert [learning_rate_at(step, 100, cosine) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert learning_rate_at(4, 100, cosine) == 1.0
    assert learning_rate_at(52, 100, cosine) == pytest.approx(0.55)
    assert learning_rate_at(100, 100, cosine) == pytest.approx(0.1)
    constant = SftConfig(learning_rate=1.0, warmup_steps=0, schedule="constant")
    assert {learning_rate_at(step, 100, constant) for step in (0, 50, 99)} == {1.0}


def test_a_tiny_run_learns_and_repeats_bit_by_bit() -> None:
    config = SftConfig(learning_rate=1e-2, batch_size=8, epochs=10, warmup_steps=4)
    models = [make_model(), make_model()]
    first, second = (train(model, TOKENIZER, ROWS, config) for model in models)
    assert first.steps == 80 and first.examples == 640
    assert first.mean_loss(70, 80) < 0.3 * first.mean_loss(0, 10)
    assert [step.loss for step in first.history] == [step.loss for step in second.history]
    for left, right in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(left, right)


def test_other_seed_other_weights() -> None:
    models = [make_model(), make_model()]
    for seed, model in enumerate(models):
        train(model, TOKENIZER, ROWS, SftConfig(max_steps=5, batch_size=8, seed=seed))
    assert not torch.equal(models[0].lm_head.weight, models[1].lm_head.weight)


def test_max_steps_ends_the_run() -> None:
    result = train(make_model(), TOKENIZER, ROWS, SftConfig(max_steps=3, batch_size=8))
    assert result.steps == len(result.history) == 3
    assert 0 <= result.padding_share < 1


def test_frozen_parameters_stay() -> None:
    model = make_model()
    frozen = model.model.layers[0].mlp.up_proj.weight
    frozen.requires_grad_(False)
    before = frozen.clone()
    train(model, TOKENIZER, ROWS, SftConfig(max_steps=3, batch_size=8))
    assert torch.equal(frozen, before)


def test_a_loss_that_is_not_finite_stops() -> None:
    model = make_model()
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(LossNotFinite, match="step 0"):
        train(model, TOKENIZER, ROWS, SftConfig(max_steps=3))
