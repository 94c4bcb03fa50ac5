"""A packed sample is the sample alone: logits, entropies and gradients."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from tasks.train.trainer import Sample
from tasks.train.trainer.errors import AttentionUnsupported, BadSample, ModelUnsupported
from tasks.train.trainer.packed import PackedRow, bundle_tokens, bundles, distinct, pack_row
from tasks.train.trainer.policy import Policy, load_policy
from tests.tasks.train.trainer.helpers import NANO, make_samples, settings

CPU = torch.device("cpu")
Make = Callable[..., list[Sample]]


def one_row(samples: list[Sample]) -> tuple[PackedRow, list[Sample]]:
    """All samples in one row, and the order in which they lie in it."""
    made = [[samples[at] for at in bundle] for bundle in bundles(samples, 10**6)]
    return pack_row(made, CPU, padded=True), [sample for bundle in made for sample in bundle]


def alone(model, sample: Sample) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies of a sample by the plain model."""
    ids = torch.tensor([sample.prompt_ids + sample.output_ids])
    count = len(sample.output_ids)
    logits = model(input_ids=ids, use_cache=False).logits[0, -count - 1 : -1]
    spread = (logits / sample.temperature).log_softmax(-1)
    return spread.gather(1, ids[0, -count:, None])[:, 0], -(spread.exp() * spread).sum(-1)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(NANO, settings(), trained=True)


def branching_samples(temperature: float) -> list[Sample]:
    """Samples that begin alike, are the same, or are the beginning of another."""
    rng = np.random.default_rng(5)
    outputs = [(7,), (7, 8, 9, 10), (7, 8, 9, 10), (7, 8, 11, 10, 3), (7, 8), (5, 8, 9), (5, 8, 9)]
    return [
        Sample(f"{prompt}-{at}", prompt, output,
               rng.uniform(-6, -2, len(output)).astype(np.float32), 1.0, temperature)
        for prompt in ((1, 2, 3), (1, 2))
        for at, output in enumerate(outputs)
    ]  # fmt: skip


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("make", [make_samples, branching_samples])
def test_packed_is_alone(policy: Policy, make: Make, temperature: float) -> None:
    plain = AutoModelForCausalLM.from_pretrained(NANO, dtype=torch.float32)
    row, order = one_row(make(temperature=temperature))
    logprobs, entropy = policy(row)
    weight = torch.linspace(-1, 1, len(logprobs))
    policy.zero_grad()
    ((logprobs + 0.5 * entropy) * weight).sum().backward()
    first = 0
    for sample in order:
        expected, spread = alone(plain, sample)
        part = slice(first, first + len(expected))
        torch.testing.assert_close(logprobs[part], expected, rtol=0, atol=2e-5)
        torch.testing.assert_close(entropy[part], spread, rtol=0, atol=2e-5)
        ((expected + 0.5 * spread) * weight[part]).sum().backward()
        first += len(expected)
    for ours, theirs in zip(policy.model.parameters(), plain.parameters(), strict=True):
        scale = theirs.grad.abs().max()
        torch.testing.assert_close(ours.grad / scale, theirs.grad / scale, rtol=0, atol=1e-5)


def test_a_neighbour_changes_nothing(policy: Policy) -> None:
    first, second, other = make_samples(prompts=3, per_prompt=1)
    count = len(first.output_ids)
    with torch.no_grad():
        beside = [policy(one_row([first, neighbour])[0])[0] for neighbour in (second, other)]
        shared = Sample("s", first.prompt_ids, second.output_ids, second.behaviour_logprobs, 1.0)
        beside.append(policy(one_row([first, shared])[0])[0])
        single = policy(one_row([first])[0])[0]
    for logprobs in beside:
        torch.testing.assert_close(logprobs[:count], single, rtol=0, atol=1e-5)


def test_layout_of_a_row() -> None:
    zeros = np.zeros(3, dtype=np.float32)
    samples = [
        Sample("a", (1, 2), (3, 4, 5), zeros, 1.0),
        Sample("b", (1, 2), (6, 7, 8), zeros, -1.0, trainable=False),
        Sample("c", (9,), (3,), zeros[:1], 2.0),
    ]
    row, _ = one_row(samples)
    assert row.ids.tolist() == [[1, 2, 3, 4, 6, 7, 9]]
    assert row.positions.tolist() == [[0, 1, 2, 3, 2, 3, 0]]
    assert row.sources.tolist() == [1, 2, 3, 1, 4, 5, 6]
    assert row.targets.tolist() == [3, 4, 5, 6, 7, 8, 3]
    assert row.sequence_ids.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert row.mask.tolist() == [True] * 3 + [False] * 3 + [True]
    assert row.advantages.tolist() == [1, 1, 1, -1, -1, -1, 2]
    assert row.attention.filled == 4 + 4 + 1
    assert row.tokens == 7 and row.cells == 12  # the short one is padded to the width of the others
    assert not row.without_loss().mask.any()


def test_what_samples_begin_with_is_in_a_row_once() -> None:
    samples = branching_samples(1.0)[:7]
    row, _ = one_row(samples)
    # prompt 1 2 3; 7 8 9 of the second, 11 10 of the fourth, 5 8 of the last
    assert row.ids.tolist() == [[1, 2, 3, 7, 8, 9, 11, 10, 5, 8]]
    assert row.positions.tolist() == [[0, 1, 2, 3, 4, 5, 5, 6, 3, 4]]
    assert row.sources.tolist() == [
        2, 2, 3, 4, 5, 2, 3, 4, 5, 2, 3, 4, 6, 7, 2, 3, 2, 8, 9, 2, 8, 9
    ]  # fmt: skip
    assert row.targets.tolist() == [token for sample in samples for token in sample.output_ids]
    assert row.tokens == bundle_tokens(samples) == 10
    # attention is computed for the third, fourth and seventh alone
    assert [len(sample.output_ids) for sample in distinct(samples)] == [4, 5, 3]
    assert row.cells == 3 * 7 and row.attention.filled == 6 + 7 + 5


def test_bundles_hold_each_sample_once_and_fit() -> None:
    samples = make_samples(prompts=6, per_prompt=9)
    for capacity in (80, 200, 5000):
        made = bundles(samples, capacity)
        assert sorted(at for bundle in made for at in bundle) == list(range(len(samples)))
        for bundle in made:
            assert len({samples[at].prompt_ids for at in bundle}) == 1
            assert bundle_tokens([samples[at] for at in bundle]) <= capacity
    assert len(bundles(samples, 5000)) == 6


def test_a_sample_longer_than_a_row_is_refused_not_cut() -> None:
    sample = make_samples(prompts=1, per_prompt=1)[0]
    with pytest.raises(BadSample, match=f"it has {sample.tokens} tokens and a row holds 20"):
        bundles([sample], 20)


def test_a_padded_cell_costs_little() -> None:
    """Long-tailed lengths: few more cells than tokens."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(1 + rng.pareto(1.2, 60) * 20, 900).astype(int)
    samples = [
        Sample(str(at), (at,), (1,) * int(n), np.zeros(n, dtype=np.float32), 1.0)
        for at, n in enumerate(lengths)
    ]
    row, _ = one_row(samples)
    assert row.tokens == sum(lengths)
    assert row.cells < 1.2 * row.tokens < 0.5 * len(lengths) * max(lengths)


def test_attention_that_is_not_plain_is_refused(tmp_path) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, sliding_window=20,
    )  # fmt: skip
    MistralForCausalLM(config).save_pretrained(tmp_path)
    policy = load_policy(tmp_path, settings(), trained=False)
    ids = tuple(at % 50 for at in range(21))
    sample = Sample("long", ids[:1], ids[1:], np.zeros(20, dtype=np.float32), 1.0)
    assert policy(one_row([sample])[0])[0].shape == (20,)
    sample = Sample("longer", ids[:2], ids[1:], np.zeros(20, dtype=np.float32), 1.0)
    with pytest.raises(AttentionUnsupported, match="sliding window 20"):
        policy(one_row([sample])[0])


def test_grouped_queries(tmp_path) -> None:
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    policy = load_policy(tmp_path, settings(), trained=False)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    samples = [
        Sample(name, ids, out, np.zeros(len(out), dtype=np.float32), 1.0)
        for name, ids, out in (("a", (1, 2, 3), (4, 5)), ("b", (1, 2, 3), (9, 8, 7)))
    ]
    row, order = one_row(samples)
    expected = torch.cat([alone(plain, sample)[0] for sample in order])
    torch.testing.assert_close(policy(row)[0], expected, rtol=0, atol=1e-5)


def test_a_model_that_mixes_tokens_outside_attention_is_refused(tmp_path) -> None:
    from transformers import Lfm2Config, Lfm2ForCausalLM

    config = Lfm2Config(
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, layer_types=["conv", "full_attention"],
        initializer_range=0.5,
    )  # fmt: skip
    Lfm2ForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(ModelUnsupported, match="packed behind another"):
        load_policy(tmp_path, settings(), trained=False)


def test_a_model_that_caps_its_logits_is_refused(tmp_path) -> None:
    from transformers import CohereConfig, CohereForCausalLM

    config = CohereConfig(
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, logit_scale=0.0625, initializer_range=0.5,
    )  # fmt: skip
    CohereForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(ModelUnsupported, match="not the head"):
        load_policy(tmp_path, settings(), trained=False)
