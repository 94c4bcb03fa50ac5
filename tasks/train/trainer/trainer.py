"""One rollout step after another: old log-probabilities, minibatches, optimizer steps.

Invariants:
- A minibatch's loss has one divisor over all its micro-batches and ranks, so neither accumulation
  nor the number of ranks changes it beyond rounding.
- The order of samples depends on the seed and the step alone; every rank makes the same plan.
- Old log-probabilities are those of the weights at the start of the rollout step. The first
  minibatch still has these weights, so its own log-probabilities are the old ones.
- An optimizer step whose loss or gradient is not finite leaves weights and optimizer as they were.
  It is not counted as a step, so that learning rate and AdamW's corrections follow those taken.
"""

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infra.models.registry import COMPUTE_DTYPE
from infra.models.revision import directory_revision
from tasks.train import packing
from tasks.train.objective import LossTerms, ObjectiveConfig, policy_loss
from tasks.train.objective.aggregation import normaliser
from tasks.train.objective.metrics import by_group
from tasks.train.sft import parameter_groups
from tasks.train.trainer.checkpoint import read_checkpoint, read_state, write_checkpoint
from tasks.train.trainer.config import FREE, TrainerConfig
from tasks.train.trainer.errors import BadCheckpoint, BadSample, NothingToTrain, StepNotFinite
from tasks.train.trainer.figures import data_figures, policy_figures
from tasks.train.trainer.operations import Operations
from tasks.train.trainer.packed import PackedRow, bundle_tokens, bundles, pack_row
from tasks.train.trainer.policy import Policy, load_policy
from tasks.train.trainer.ranks import Ranks, join_ranks, place, release, whole
from tasks.train.trainer.sample import Sample
from tasks.train.trainer.weights import write_weights

MOST_SKIPPED = 8
"""Optimizer steps in a row that are not finite; then the run is given up."""


@dataclass(frozen=True)
class MiniBatch:
    """What one optimizer step trains on: this rank's rows and the divisor of all ranks."""

    rows: list[PackedRow]
    normaliser: float


class Trainer:
    """The policy, its optimizer and the count of rollout steps."""

    def __init__(
        self, model_dir: Path, config: TrainerConfig, objective: ObjectiveConfig, seed: int
    ) -> None:
        self.config = config
        self.objective = objective
        self.seed = seed
        self.step = 0
        self.optimizer_steps = 0
        self._skipped = 0
        """Optimizer steps since the last one that was finite."""
        self.total_tokens = 0
        self.total_samples = 0
        self.ranks: Ranks = join_ranks(config.dtype)
        self._model_dir = model_dir
        self._revision = directory_revision(model_dir, COMPUTE_DTYPE)
        torch.manual_seed(seed)  # weights of new adapters, the same at all ranks
        self.policy = load_policy(model_dir, config, trained=True)
        place(self.policy, self.ranks, config.dtype)
        self._reference: Policy | None = None
        if objective.kl_coef and config.lora is None:
            self._reference = load_policy(model_dir, config, trained=False)
            place(self._reference, self.ranks, config.dtype)
        self._optimizer = torch.optim.AdamW(
            parameter_groups(self.policy, config.weight_decay),
            lr=config.learning_rate,
            betas=config.betas,
            eps=config.epsilon,
            fused=True,
        )
        self._operations = Operations.of(self.policy)
        self._context = int(self.policy.model.config.max_position_embeddings)

    def rehearse(self) -> None:
        """Compute a pass that changes nothing: the first of a process takes longer than others."""
        # One token, which fits into any row and vocabulary.
        shortest = Sample("rehearsal", (0,), (0,), np.zeros(1, dtype=np.float32), advantage=0.0)
        batch = self._mini_batch([shortest])
        self._no_grad(self.policy, batch.rows)
        for row in batch.rows:
            self.policy(row)[0].sum().backward()
        self._optimizer.zero_grad(set_to_none=True)

    def train_step(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Train rollout step `self.step + 1` and return its metrics."""
        begin, optimizer_steps = time.perf_counter(), self.optimizer_steps
        self._check(samples)
        batches = [self._mini_batch(part) for part in self._deal(samples)]
        packed = time.perf_counter()
        old: list[list[Tensor | None]] = [[None] * len(batches[0].rows)]
        old += [self._no_grad(self.policy, batch.rows) for batch in batches[1:]]
        old_done = time.perf_counter()
        reference = [self._reference_logprobs(batch.rows) for batch in batches]
        reference_done = time.perf_counter()
        kinds = sorted({sample.kind for sample in samples})
        losses, norms, sums, maxima = [], [], [], []
        for batch, old_rows, reference_rows in zip(batches, old, reference, strict=True):
            loss, norm, terms = self._optimizer_step(batch, old_rows, reference_rows)
            losses.append(loss)
            norms.append(norm)
            for row, term in zip(batch.rows, terms, strict=True):
                found = by_group(term.figures, _kinds(row, kinds), len(kinds))
                sums.append(found[0])
                maxima.append(found[1])
        done = time.perf_counter()
        self.step += 1
        tokens = sum(sample.tokens for sample in samples)
        self.total_tokens += tokens
        self.total_samples += len(samples)
        rows = [row for batch in batches for row in batch.rows]
        own = [
            sum(row.tokens for row in rows),
            sum(row.attention.filled for row in rows),
            sum(row.cells for row in rows),
            self._work(batches),
        ]
        # float64: operations of a large step exceed 64-bit integers
        counted = torch.tensor([float(x) for x in own], dtype=torch.float64)
        totals = self.ranks.total(counted.to(self.ranks.device))
        computed, filled, cells, operations = totals.tolist()
        seconds = done - begin
        tflops = 1e-12 * operations / seconds / self.ranks.world
        peak = self.config.peak_tflops
        return {
            "loss": sum(losses) / len(losses),
            **policy_figures(
                self.ranks.total(torch.stack(sums).sum(0)),
                self.ranks.highest(torch.stack(maxima).amax(0)),
                kinds,
            ),
            "optim/grad_norm": sum(norms) / len(norms),
            "optim/learning_rate": self._learning_rate(max(0, self.optimizer_steps - 1)),
            "optim/steps": float(self.optimizer_steps),
            "optim/skipped": float(len(batches) - (self.optimizer_steps - optimizer_steps)),
            **data_figures(samples),
            "data/computed_tokens": computed,
            "data/attention_padding": 1 - filled / cells,
            "data/micro_batches": float(len(rows)),
            "data/total_tokens": float(self.total_tokens),
            "data/total_samples": float(self.total_samples),
            "time/pack": packed - begin,
            "time/old_logprobs": old_done - packed,
            "time/reference_logprobs": reference_done - old_done,
            "time/train": done - reference_done,
            "time/step": seconds,
            "perf/tokens_per_second": tokens / seconds,
            "perf/tokens_per_second_per_rank": tokens / seconds / self.ranks.world,
            "perf/tflops_per_rank": tflops,
            **({} if peak is None else {"perf/mfu": tflops / peak}),
        }

    def save_weights(self, directory: Path) -> None:
        """Write the policy as a model directory; it appears whole."""
        write_weights(
            directory,
            self.ranks,
            self.policy,
            self._model_dir,
            self.config.dtype,
            self.config.lora,
        )

    def save(self, directory: Path) -> None:
        """Write a checkpoint; it appears whole."""
        state = {
            "step": self.step,
            "optimizer_steps": self.optimizer_steps,
            "skipped": self._skipped,
            "total_tokens": self.total_tokens,
            "total_samples": self.total_samples,
            **self._settings(),
        }
        write_checkpoint(directory, self.ranks, self.policy, self._optimizer, state)

    def restore(self, directory: Path) -> None:
        """Go on from a checkpoint of the same model, settings and seed."""
        state = read_state(directory)
        for name, value in self._settings().items():
            if state.get(name) != value:
                raise BadCheckpoint(directory, f"its {name} is {state.get(name)}, here {value}")
        read_checkpoint(directory, self.policy, self._optimizer, state["optimizer_steps"])
        self.step = state["step"]
        self.optimizer_steps = state["optimizer_steps"]
        self._skipped = state["skipped"]
        self.total_tokens = state["total_tokens"]
        self.total_samples = state["total_samples"]

    def _settings(self) -> Mapping[str, Any]:
        """What two runs must share for one to go on from the other's checkpoint."""
        return {
            "model": self._revision,
            "seed": self.seed,
            "config": self.config.model_dump(mode="json", exclude=FREE),
            "objective": self.objective.model_dump(mode="json"),
        }

    def _check(self, samples: Sequence[Sample]) -> None:
        if not any(sample.trainable for sample in samples):
            raise NothingToTrain(self.step + 1, len(samples))
        vocabulary = self.policy.model.get_output_embeddings().weight.shape[0]
        for sample in samples:
            if sample.tokens > self._context:
                problem = f"{sample.tokens} tokens exceed the model's context of {self._context}"
                raise BadSample(sample.sample_id, problem)
            worst = max(max(sample.prompt_ids), max(sample.output_ids))
            if worst >= vocabulary or min(min(sample.prompt_ids), min(sample.output_ids)) < 0:
                raise BadSample(sample.sample_id, f"a token id is not in 0..{vocabulary - 1}")

    def _deal(self, samples: Sequence[Sample]) -> list[list[Sample]]:
        """The samples in random order of prompts, cut into the minibatches.

        Samples of a prompt stay side by side, since they share its computation.
        """
        groups: dict[tuple[int, ...], list[Sample]] = {}
        for sample in samples:
            groups.setdefault(sample.prompt_ids, []).append(sample)
        key = np.random.Philox(key=np.array([self.seed, self.step], dtype=np.uint64))
        order = np.random.Generator(key).permutation(len(groups))
        listed = list(groups.values())
        dealt = [sample for at in order for sample in listed[at]]
        steps = min(self.config.optimizer_steps, len(dealt))
        cuts = [len(dealt) * at // steps for at in range(steps + 1)]
        return [dealt[a:b] for a, b in itertools.pairwise(cuts)]

    def _mini_batch(self, samples: Sequence[Sample]) -> MiniBatch:
        capacity = self.config.micro_batch_tokens
        made = [[samples[at] for at in bundle] for bundle in bundles(samples, capacity)]
        lengths = [bundle_tokens(bundle) for bundle in made]
        work = [self._operations.bundle(bundle) for bundle in made]
        plan = packing.plan(lengths, work, capacity, self.ranks.world)[self.ranks.rank]
        device = self.ranks.device
        padded = device.type == "cpu" or self.config.dtype == "float32"
        rows = [
            pack_row([made[at] for at in row], device, padded)
            if row
            else pack_row([made[-1][:1]], device, padded).without_loss()
            for row in plan
        ]
        loss_lengths = [len(sample.output_ids) for sample in samples if sample.trainable]
        return MiniBatch(rows, normaliser(loss_lengths, self.objective.aggregation))

    def _work(self, batches: Sequence[MiniBatch]) -> int:
        """Floating-point operations of this rank for a step."""
        old = sum(self._operations.forward(batch.rows) for batch in batches[1:])
        reference = sum(self._operations.forward(batch.rows) for batch in batches)
        trained = sum(self._operations.training(batch.rows) for batch in batches)
        return old + trained + (reference if self.objective.kl_coef else 0)

    @torch.no_grad()
    def _no_grad(self, policy: Policy, rows: Sequence[PackedRow]) -> list[Tensor | None]:
        logprobs: list[Tensor | None] = [policy(row)[0] for row in rows]
        release(policy)
        return logprobs

    def _reference_logprobs(self, rows: Sequence[PackedRow]) -> list[Tensor | None]:
        if not self.objective.kl_coef:
            return [None] * len(rows)
        bare = nullcontext() if self._reference else self.policy.without_adapters()
        with bare:
            return self._no_grad(self._reference or self.policy, rows)

    def _optimizer_step(
        self, batch: MiniBatch, old: Sequence[Tensor | None], reference: Sequence[Tensor | None]
    ) -> tuple[float, float, list[LossTerms]]:
        self._optimizer.zero_grad(set_to_none=True)
        terms: list[LossTerms] = []
        for row, old_logprobs, reference_logprobs in zip(batch.rows, old, reference, strict=True):
            logprobs, entropy = self.policy(row)
            term = policy_loss(
                logprobs=logprobs,
                old_logprobs=logprobs.detach() if old_logprobs is None else old_logprobs,
                behaviour_logprobs=row.behaviour_logprobs,
                reference_logprobs=reference_logprobs,
                entropy=entropy,
                advantages=row.advantages,
                mask=row.mask,
                sequence_ids=row.sequence_ids,
                normaliser=batch.normaliser,
                config=self.objective,
            )
            # the ranks' gradients are averaged, but the losses have one divisor and must add up
            (term.loss * self.ranks.world).backward()  # type: ignore[no-untyped-call]
            terms.append(LossTerms(term.loss.detach(), term.figures))
        loss = self.ranks.total(torch.stack([term.loss for term in terms]).sum()).item()
        total = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.config.max_grad_norm)
        norm = whole(total).item()
        if not (math.isfinite(loss) and math.isfinite(norm)):  # both are the same at all ranks
            self._skipped += 1
            if self._skipped == MOST_SKIPPED:
                raise StepNotFinite(self.step + 1, self._skipped, loss, norm)
            return loss, norm, terms
        self._skipped = 0
        rate = self._learning_rate(self.optimizer_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self.optimizer_steps += 1
        return loss, norm, terms

    def _learning_rate(self, step: int) -> float:
        """Rate of optimizer step 0, 1, ..."""
        config = self.config
        if step < config.warmup_steps:
            return config.learning_rate * (step + 1) / config.warmup_steps
        if config.schedule == "constant" or config.total_steps is None:
            return config.learning_rate
        left = max(1, config.total_steps - config.warmup_steps)
        done = min(1.0, (step - config.warmup_steps) / left)
        shape = 1 - done if config.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
        return config.learning_rate * shape


def _kinds(row: PackedRow, kinds: Sequence[str]) -> Tensor:
    """Number of the kind of each loss token of a row, int64."""
    numbers = torch.tensor([kinds.index(kind) for kind in row.kinds], device=row.mask.device)
    return numbers[row.sequence_ids[row.mask]]
