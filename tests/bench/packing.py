"""Training on packed rows against padded batches, on long-tailed lengths.

All sides do one optimizer step on the same samples with the same model: forward, policy loss,
backward, gradient norm, AdamW; their first losses must be equal. The other sides pad on the right
and go through transformers' own model and attention, with logits of output positions only, in
batches of as many cells as a packed row has tokens: `padded`, in random order, to the longest
sample of the batch (the figure); `whole_step`, to the longest of the step, as TRL does; `sorted`
by length, the best that padding can do. A token counts once per sample on all sides. Seconds are
CPU seconds of this process, so that a busy machine does not count.

    python -m tests.bench.packing [--models s m] [--rounds 3] [--samples 256] [--threads 1]

Prints JSON lines: `train_tokens_per_s/<model>/<peer>` for samples with prompts of their own,
`.../groups` for groups of 8 that share a prompt, `.../policy` for groups of 16 that the start
policy of rl-local sampled (which share their beginnings too), and `padding_share` (cells without a
token; ours counts what attention computes, as nothing else of it is padded).
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from infra.inference.protocol import Request, SamplingParams
from infra.inference.transformers_engine import TransformersEngine
from infra.models.registry import materialise
from tasks.train.objective import ObjectiveConfig, policy_loss
from tasks.train.rounds.tasks import TaskChoice, read_split
from tasks.train.sft import parameter_groups
from tasks.train.trainer import Sample, TrainerConfig
from tasks.train.trainer.trainer import Trainer
from tests.bench.rl_tasks import write_split

NANO = Path(__file__).resolve().parents[2] / "infra" / "models" / "nano"
OBJECTIVE = ObjectiveConfig(kl_coef=0.0)
SETTINGS = TrainerConfig(
    learning_rate=1e-4, optimizer_steps=1, micro_batch_tokens=8192, max_grad_norm=1.0
)
GROUP, POLICY_GROUP = 8, 16
POLICY = "tracemill/nano-rl"
LAYOUTS = ("padded", "whole_step", "sorted")


def long_tailed(count: int, group: int, seed: int = 0) -> list[Sample]:
    """Prompts of 10 to 60 tokens; outputs of log-normal length, median 40, at most 900."""
    rng = np.random.default_rng(seed)
    made = []
    for at in range(count):
        if at % group == 0:
            prompt = tuple(rng.integers(0, 256, rng.integers(10, 60)).tolist())
        length = int(np.clip(rng.lognormal(np.log(40), 1.0), 2, 900))
        output = tuple(rng.integers(0, 256, length).tolist())
        logprobs = np.full(length, -5.0, dtype=np.float32)
        made.append(Sample(str(at), prompt, output, logprobs, float(rng.normal())))
    return made


def of_policy(count: int) -> list[Sample]:
    """Groups of 16 samples of words to spell backward, as a step of rl-local has them."""
    groups = count // POLICY_GROUP
    with tempfile.TemporaryDirectory() as name:
        dataset = write_split(Path(name), ["spell_backward"], groups + 8, "rl-tasks")
        tasks = read_split(TaskChoice(dataset=str(dataset), held_out=1)).train[:groups]
    engine = TransformersEngine(materialise(POLICY), POLICY, revision="local")
    prompts = [tuple(engine.render([dict(m) for m in task.prompt])[0]) for task in tasks]
    requests = [
        Request(f"{at}/{number}", prompt, POLICY_GROUP * at + number)
        for at, prompt in enumerate(prompts)
        for number in range(POLICY_GROUP)
    ]
    rng = np.random.default_rng(0)
    return [
        Sample(
            request.trace_id,
            request.prompt_ids,
            tuple(done.output_ids),
            np.array(done.logprobs, dtype=np.float32),
            float(rng.normal()),
        )
        for request, done in zip(
            requests, engine.generate(requests, SamplingParams(max_tokens=28)), strict=True
        )
    ]


class Padded:
    """The other side: padded batches through the plain model."""

    def __init__(self, model_dir: Path, layout: str) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
        self._layout = layout
        self._optimizer = torch.optim.AdamW(
            parameter_groups(self._model, SETTINGS.weight_decay), lr=1e-4, fused=True
        )
        self.cells = 0

    def step(self, samples: Sequence[Sample]) -> float:
        """One optimizer step; the loss."""
        self._optimizer.zero_grad(set_to_none=True)
        normaliser = float(sum(len(sample.output_ids) for sample in samples))
        self.cells, total = 0, 0.0
        for batch in self._batches(samples):
            loss = self._loss(batch, normaliser)
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), SETTINGS.max_grad_norm)
        self._optimizer.step()
        return total

    def _batches(self, samples: Sequence[Sample]) -> list[list[Sample]]:
        self._width = 0
        if self._layout == "sorted":
            samples = sorted(samples, key=lambda sample: sample.tokens)
        if self._layout == "whole_step":
            self._width = max(sample.tokens for sample in samples)
        made: list[list[Sample]] = [[]]
        for sample in samples:
            longest = max(self._width, *(other.tokens for other in (*made[-1], sample)))
            if made[-1] and longest * (len(made[-1]) + 1) > SETTINGS.micro_batch_tokens:
                made.append([])
            made[-1].append(sample)
        return made

    def _loss(self, batch: Sequence[Sample], normaliser: float) -> torch.Tensor:
        width = max(self._width, *(sample.tokens for sample in batch)) + 1
        ids = torch.zeros(len(batch), width, dtype=torch.long)
        mask = torch.zeros(len(batch), width, dtype=torch.bool)
        behaviour, advantages = torch.zeros(len(batch), width), torch.zeros(len(batch), width)
        for row, sample in enumerate(batch):
            first, end = len(sample.prompt_ids), len(sample.prompt_ids) + len(sample.output_ids)
            ids[row, :end] = torch.tensor(sample.prompt_ids + sample.output_ids)
            mask[row, first:end] = True
            behaviour[row, first:end] = torch.tensor(sample.behaviour_logprobs)
            advantages[row, first:end] = sample.advantage
        self.cells += len(batch) * (width - 1)
        kept = width - min(len(sample.prompt_ids) for sample in batch)
        logits = self._model(input_ids=ids[:, :-1], logits_to_keep=kept, use_cache=False).logits
        spread = logits.float().log_softmax(-1)
        logprobs = spread.gather(2, ids[:, -kept:, None])[:, :, 0].flatten()
        with torch.no_grad():
            entropy = -(spread.exp() * spread).sum(-1).flatten()
        rows = torch.arange(len(batch))[:, None].expand(-1, kept).flatten()
        return policy_loss(
            logprobs, logprobs.detach(), behaviour[:, -kept:].flatten(), None, entropy,
            advantages[:, -kept:].flatten(), mask[:, -kept:].flatten(), rows, normaliser, OBJECTIVE,
        ).loss  # fmt: skip


def timed(work: Callable[[], float]) -> tuple[float, float]:
    """CPU seconds of one call, and what it gave."""
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def compare(model: str, samples: Sequence[Sample], rounds: int, suffix: str) -> None:
    """Print the figures of one model on one set of samples."""
    trainer = Trainer(NANO / model, SETTINGS, OBJECTIVE, seed=0)
    peers = {layout: Padded(NANO / model, layout) for layout in LAYOUTS}
    times: dict[str, list[float]] = {"ours": [], **{name: [] for name in peers}}
    padding = 0.0

    def our_step() -> float:
        nonlocal padding
        metrics = trainer.train_step(samples)
        padding = metrics["data/attention_padding"]
        return metrics["loss"]

    for round_number in range(rounds + 1):
        sides = {"ours": timed(our_step)}
        for name, peer in peers.items():
            sides[name] = timed(lambda peer=peer: peer.step(samples))
        losses = {name: loss for name, (_, loss) in sides.items()}
        if round_number:  # the first warms up
            for name, (taken, _) in sides.items():
                times[name].append(taken)
        else:
            assert max(losses.values()) - min(losses.values()) < 1e-5, losses
    tokens = sum(sample.tokens for sample in samples)
    rate = {name: tokens / statistics.median(values) for name, values in times.items()}
    for name, peer in peers.items():
        show(f"train_tokens_per_s/nano-{model}/{name}{suffix}", rate["ours"], rate[name], "1/s")
        if model == "s":
            theirs = 1 - tokens / peer.cells
            show(f"padding_share/{name}{suffix}", padding, theirs, "share", smaller_is_better=True)


def show(metric: str, ours: float, peer: float, unit: str, smaller_is_better: bool = False) -> None:
    """One JSON line."""
    ratio = peer / ours if smaller_is_better else ours / peer
    figures = {"ours": round(ours, 4), "peer": round(peer, 4), "ratio": round(ratio, 3)}
    line = {"bench": "packing", "metric": metric, **figures}
    print(json.dumps(line | {"peer_name": "padded batches", "unit": unit}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["s", "m"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for model in given.models:
        compare(model, long_tailed(given.samples, 1), given.rounds, "")
        compare(model, long_tailed(given.samples, GROUP), given.rounds, "/groups")
        compare(model, of_policy(given.samples), given.rounds, "/policy")


if __name__ == "__main__":
    main()
