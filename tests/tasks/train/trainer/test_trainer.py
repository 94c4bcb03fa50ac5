"""Training steps: what may not change a result, and what must."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import torch

from tasks.train.objective import ObjectiveConfig
from tasks.train.trainer import LoraSettings, Sample, TrainerConfig
from tasks.train.trainer.errors import (
    BadCheckpoint,
    BadSample,
    NothingToTrain,
    StepNotFinite,
)
from tests.tasks.train.trainer.helpers import NANO, make_samples, new_trainer, weights

WITH_KL = ObjectiveConfig(kl_coef=0.05, entropy_coef=0.01)
TIMES = ("time/", "perf/")


def figures(metrics: dict[str, float]) -> dict[str, float]:
    """Metrics without those of the clock."""
    return {name: value for name, value in metrics.items() if not name.startswith(TIMES)}


@pytest.mark.parametrize("lora", [None, LoraSettings()])
def test_a_rehearsal_changes_nothing(lora: LoraSettings | None) -> None:
    first, second = new_trainer(lora=lora), new_trainer(lora=lora)
    second.rehearse()
    samples = make_samples()
    assert figures(first.train_step(samples)) == figures(second.train_step(samples))
    assert torch.equal(weights(first), weights(second))


def test_resumed_training_is_bit_identical(tmp_path) -> None:
    first = new_trainer(WITH_KL)
    first.train_step(make_samples(seed=1))
    first.save(tmp_path / "checkpoint")
    second = new_trainer(WITH_KL)
    second.restore(tmp_path / "checkpoint")
    assert second.step == 1 and second.optimizer_steps == 2
    for seed in (2, 3):
        expected, resumed = (t.train_step(make_samples(seed=seed)) for t in (first, second))
        assert figures(resumed) == figures(expected)
    assert torch.equal(weights(first), weights(second))
    assert not torch.equal(weights(first), weights(new_trainer(WITH_KL)))


def test_a_checkpoint_of_other_settings_is_refused(tmp_path) -> None:
    trainer = new_trainer()
    trainer.save(tmp_path / "checkpoint")
    with pytest.raises(BadCheckpoint, match="its seed is 3, here 4"):
        new_trainer(seed=4).restore(tmp_path / "checkpoint")
    with pytest.raises(BadCheckpoint, match="its config is"):
        new_trainer(learning_rate=2e-3).restore(tmp_path / "checkpoint")
    new_trainer(micro_batch_tokens=100).restore(tmp_path / "checkpoint")


@pytest.mark.parametrize("damage", ["truncated", "other", "absent"])
def test_a_damaged_checkpoint_is_refused(tmp_path, damage: str) -> None:
    trainer = new_trainer()
    trainer.train_step(make_samples(prompts=2))
    trainer.save(tmp_path / "checkpoint")
    file = tmp_path / "checkpoint" / "rank_00000.safetensors"
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-1000])
    elif damage == "other":
        file.write_bytes((NANO / "model.safetensors").read_bytes())
    else:
        file.unlink()
    with pytest.raises(BadCheckpoint, match="checkpoint"):
        new_trainer().restore(tmp_path / "checkpoint")


def test_nothing_of_a_checkpoint_is_a_pickle(tmp_path) -> None:
    trainer = new_trainer()
    trainer.train_step(make_samples(prompts=1))
    trainer.save(tmp_path / "checkpoint")
    names = sorted(path.name for path in (tmp_path / "checkpoint").iterdir())
    assert names == ["rank_00000.safetensors", "state.json"]
    assert json.loads((tmp_path / "checkpoint" / "state.json").read_text())["step"] == 1


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "sequence_sum"])
def test_accumulation_changes_nothing(aggregation: str) -> None:
    objective = ObjectiveConfig(kl_coef=0.0, aggregation=aggregation)
    samples = make_samples()
    trainers = [
        new_trainer(objective, micro_batch_tokens=tokens, head_rows=rows, optimizer_steps=1)
        for tokens, rows in ((5000, 5000), (80, 16))
    ]
    whole, pieces = (trainer.train_step(samples) for trainer in trainers)
    assert whole["data/micro_batches"] == 1 and pieces["data/micro_batches"] > 8
    assert pieces["loss"] == pytest.approx(whole["loss"], abs=1e-6)
    assert pieces["optim/grad_norm"] == pytest.approx(whole["optim/grad_norm"], rel=1e-4)
    grads = [
        torch.cat([p.grad.flatten() for p in trainer.policy.parameters()]) for trainer in trainers
    ]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-5 * float(grads[0].abs().max()))


def test_activation_checkpointing_changes_nothing() -> None:
    plain, saving = new_trainer(), new_trainer(activation_checkpointing=True)
    for seed in (1, 2):
        assert figures(plain.train_step(make_samples(seed))) == figures(
            saving.train_step(make_samples(seed))
        )
    assert torch.equal(weights(plain), weights(saving))


def test_only_trainable_samples_count() -> None:
    samples = make_samples()
    cut = [Sample(**(vars(s) | {"trainable": False})) for s in make_samples(seed=1)]
    trainers = [new_trainer(optimizer_steps=1, micro_batch_tokens=10_000) for _ in range(2)]
    alone, beside = (
        trainer.train_step(given)
        for trainer, given in zip(trainers, (samples, samples + cut), strict=True)
    )
    assert beside["loss"] == pytest.approx(alone["loss"], abs=1e-6)
    assert beside["optim/grad_norm"] == pytest.approx(alone["optim/grad_norm"], rel=1e-4)
    assert beside["policy/tokens"] == alone["policy/tokens"]


def test_fillers_change_neither_loss_nor_gradient(monkeypatch) -> None:
    """What a rank without rows of its own trains on, beside the rows of a step."""
    plain, filled = (new_trainer(optimizer_steps=1) for _ in range(2))
    made = filled._mini_batch

    def with_fillers(samples):
        batch = made(samples)
        fillers = [row.without_loss() for row in batch.rows]
        return dataclasses.replace(batch, rows=[*fillers, *batch.rows, *fillers])

    monkeypatch.setattr(filled, "_mini_batch", with_fillers)
    expected, found = (trainer.train_step(make_samples()) for trainer in (plain, filled))
    assert found["data/micro_batches"] == 3 * expected["data/micro_batches"]
    assert found["loss"] == pytest.approx(expected["loss"], abs=1e-7)
    assert found["policy/tokens"] == expected["policy/tokens"]
    assert torch.equal(weights(filled), weights(plain))


def test_a_good_sample_becomes_likelier_and_a_bad_one_less_likely() -> None:
    good, bad = make_samples(prompts=2, per_prompt=1)
    trainer = new_trainer(
        ObjectiveConfig(kl_coef=0.0, correction="none"),
        learning_rate=1e-4, optimizer_steps=1, warmup_steps=0,
    )  # fmt: skip
    samples = [
        Sample(**(vars(sample) | {"advantage": advantage}))
        for sample, advantage in ((good, 1.0), (bad, -1.0))
    ]

    @torch.no_grad()
    def total(sample: Sample) -> float:
        return trainer.policy(trainer._mini_batch([sample]).rows[0])[0].sum().item()

    before = [total(sample) for sample in samples]
    for _ in range(5):
        trainer.train_step(samples)
    after = [total(sample) for sample in samples]
    assert after[0] > before[0] and after[1] < before[1]


def test_old_logprobs_are_those_of_the_start_of_the_rollout_step() -> None:
    trainer = new_trainer(optimizer_steps=1)
    first = trainer.train_step(make_samples())
    assert first["policy/ratio"] == first["policy/ratio_max"] == 1.0
    assert first["policy/update_kl"] == 0.0
    assert new_trainer(optimizer_steps=4).train_step(make_samples())["policy/update_kl"] > 0


def test_the_reference_is_the_start_model() -> None:
    trainer = new_trainer(WITH_KL, optimizer_steps=1)
    kls = [trainer.train_step(make_samples(seed))["policy/kl"] for seed in range(3)]
    assert kls[0] == pytest.approx(0, abs=1e-9) and kls[2] > 0.01
    rows = trainer._mini_batch(make_samples()).rows
    unchanged = new_trainer()
    with torch.no_grad():
        for row, reference in zip(rows, trainer._reference_logprobs(rows), strict=True):
            torch.testing.assert_close(unchanged.policy(row)[0], reference, rtol=0, atol=1e-6)


def test_samples_are_dealt_once_and_groups_stay_together() -> None:
    trainer = new_trainer(optimizer_steps=4)
    samples = make_samples(prompts=8)
    dealt = trainer._deal(samples)
    names = [sample.sample_id for part in dealt for sample in part]
    assert sorted(names) == sorted(sample.sample_id for sample in samples)
    assert [len(part) for part in dealt] == [10] * 4
    prompts = [key for key, _ in itertools.groupby(s.prompt_ids for p in dealt for s in p)]
    assert len(prompts) == 8
    again = new_trainer(optimizer_steps=4)
    assert [s.sample_id for part in again._deal(samples) for s in part] == names
    again.step = 1
    assert [s.sample_id for part in again._deal(samples) for s in part] != names


def test_lora_trains_adapters_alone_and_saves_them_merged(tmp_path) -> None:
    from transformers import AutoModelForCausalLM

    trainer = new_trainer(WITH_KL, lora=LoraSettings(rank=4, alpha=8), learning_rate=1e-2)
    frozen = [p.clone() for p in trainer.policy.parameters() if not p.requires_grad]
    kls = [trainer.train_step(make_samples(seed))["policy/kl"] for seed in range(3)]
    assert kls[2] > 0.001
    held = [p for p in trainer.policy.parameters() if not p.requires_grad]
    assert all(torch.equal(a, b) for a, b in zip(frozen, held, strict=True))
    trainer.save_weights(tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    start = AutoModelForCausalLM.from_pretrained(NANO, dtype=torch.float32)
    ids = torch.arange(20)[None]
    expected = trainer.policy.model(input_ids=ids, use_cache=False, plan=_one(20)).logits
    torch.testing.assert_close(merged(ids).logits, expected, rtol=0, atol=1e-4)
    assert (start(ids).logits - expected).abs().max() > 0.01


def test_lora_adapter_apart_is_peft_s(tmp_path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    lora = LoraSettings(rank=4, alpha=8, targets=("q_proj", "up_proj"), save="adapter")
    trainer = new_trainer(lora=lora, learning_rate=1e-2)
    trainer.train_step(make_samples())
    trainer.save_weights(tmp_path / "adapter")
    names = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert names == {"adapter_config.json", "adapter_model.safetensors"}
    start = AutoModelForCausalLM.from_pretrained(NANO, dtype=torch.float32)
    loaded = PeftModel.from_pretrained(start, tmp_path / "adapter")
    ids = torch.arange(20)[None]
    expected = trainer.policy.model(input_ids=ids, use_cache=False, plan=_one(20)).logits
    torch.testing.assert_close(loaded(input_ids=ids).logits, expected, rtol=0, atol=1e-5)


def test_lora_resumes_bit_by_bit(tmp_path) -> None:
    first, second = (new_trainer(lora=LoraSettings(rank=2)) for _ in range(2))
    first.train_step(make_samples(1))
    first.save(tmp_path / "checkpoint")
    second.restore(tmp_path / "checkpoint")
    assert first.train_step(make_samples(2))["loss"] == second.train_step(make_samples(2))["loss"]
    assert torch.equal(weights(first), weights(second))


def _one(tokens: int):
    from tasks.train.trainer.attention import plan_attention

    return plan_attention([torch.arange(tokens)], tokens, padded=True)


def test_a_version_is_a_model_directory_that_the_engine_reads(tmp_path) -> None:
    from infra.inference.protocol import Request, SamplingParams
    from infra.inference.transformers_engine import TransformersEngine

    trainer = new_trainer(learning_rate=1e-4)
    trainer.train_step(make_samples())
    trainer.save_weights(tmp_path / "v1")
    assert not [path for path in tmp_path.iterdir() if path.name != "v1"]
    engine = TransformersEngine(tmp_path / "v1", "tracemill/nano-s", "v1")
    prompt = engine.render([{"role": "user", "content": "Reverse: abc"}])[0]
    request = Request(trace_id="t", prompt_ids=tuple(prompt), seed=1)
    made = engine.generate([request], SamplingParams(temperature=1.0, max_tokens=20))[0]
    sample = Sample(
        "t", tuple(prompt), tuple(made.output_ids), np.float32(made.logprobs), 1.0, temperature=1.0
    )
    with torch.no_grad():
        ours = trainer.policy(trainer._mini_batch([sample]).rows[0])[0]
    torch.testing.assert_close(ours, torch.tensor(made.logprobs), rtol=0, atol=1e-4)


def test_learning_rate_schedules() -> None:
    constant = new_trainer(learning_rate=1.0, warmup_steps=4)
    rates = [constant._learning_rate(step) for step in range(6)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    linear = new_trainer(learning_rate=1.0, warmup_steps=0, schedule="linear", total_steps=4)
    assert [linear._learning_rate(step) for step in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]
    cosine = new_trainer(learning_rate=1.0, warmup_steps=0, schedule="cosine", total_steps=4)
    assert cosine._learning_rate(2) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="total_steps is not given"):
        TrainerConfig(schedule="cosine")


def test_what_cannot_be_trained_on() -> None:
    trainer = new_trainer()
    cut = [Sample(**(vars(s) | {"trainable": False})) for s in make_samples()]
    with pytest.raises(NothingToTrain, match="none of its 20 samples"):
        trainer.train_step(cut)
    with pytest.raises(NothingToTrain, match="none of its 0 samples"):
        trainer.train_step([])
    with pytest.raises(BadSample, match=r"not in 0\.\.282"):
        trainer.train_step([Sample("x", (1,), (283,), np.float32([-1]), 1.0)])
    logprobs = np.zeros(2048, dtype=np.float32)
    with pytest.raises(BadSample, match="2049 tokens exceed the model's context of 2048"):
        trainer.train_step([Sample("x", (1, 2), (2,) * 2048, logprobs, 1.0)])
    assert trainer.step == trainer.optimizer_steps == 0


def poisoned(seed: int) -> list[Sample]:
    """Samples whose gradient's norm is beyond float32."""
    return [dataclasses.replace(sample, advantage=3e38) for sample in make_samples(seed)]


def test_a_step_that_is_not_finite_is_as_if_it_was_not_there() -> None:
    plain, hit = (new_trainer(schedule="linear", total_steps=10) for _ in range(2))
    for trainer in (plain, hit):
        trainer.train_step(make_samples(1))
    before = weights(hit)
    metrics = hit.train_step(poisoned(2))
    assert torch.equal(weights(hit), before)
    assert (metrics["optim/skipped"], metrics["optim/steps"]) == (2, 2)
    plain.step += 1  # decides the order of samples
    expected, found = (trainer.train_step(make_samples(3)) for trainer in (plain, hit))
    for name in ("loss", "optim/grad_norm", "optim/learning_rate", "optim/steps"):
        assert found[name] == expected[name], name
    assert found["optim/skipped"] == 0
    assert torch.equal(weights(plain), weights(hit))


def test_one_bad_minibatch_leaves_the_others(tmp_path) -> None:
    trainer = new_trainer(optimizer_steps=4)
    before = weights(trainer)
    metrics = trainer.train_step([*make_samples(1, prompts=3), *poisoned(2)[:5]])
    assert (metrics["optim/skipped"], metrics["optim/steps"]) == (1, 3)
    assert not torch.equal(weights(trainer), before) and weights(trainer).isfinite().all()


def test_too_many_bad_steps_in_a_row_end_the_run_also_after_a_resume(tmp_path) -> None:
    trainer = new_trainer()
    trainer.train_step(poisoned(0))
    trainer.train_step(make_samples())  # starts the count anew
    for seed in range(3):
        trainer.train_step(poisoned(seed))
    trainer.save(tmp_path / "checkpoint")
    resumed = new_trainer()
    resumed.restore(tmp_path / "checkpoint")
    for last in (trainer, resumed):
        with pytest.raises(StepNotFinite, match="rollout step 6: 8 optimizer steps in a row"):
            last.train_step(poisoned(9))
        assert (last.step, last.optimizer_steps) == (5, 2)


def test_nothing_but_bad_steps_can_be_resumed(tmp_path) -> None:
    trainer, resumed = new_trainer(), new_trainer()
    trainer.train_step(poisoned(0))
    trainer.save(tmp_path / "checkpoint")
    resumed.restore(tmp_path / "checkpoint")
    assert trainer.train_step(make_samples())["loss"] == resumed.train_step(make_samples())["loss"]
    assert torch.equal(weights(trainer), weights(resumed))
