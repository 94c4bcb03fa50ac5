"""Supervised training of a causal language model on rows of messages and completion.

Invariants: only completion tokens (and the end token behind them) carry loss; the order of the
examples comes from the seed alone; on a CPU with a fixed thread count the same rows, seed and
start weights give bit-identical weights. Examples are padded on the right, so causal attention
never sees padding and no mask is needed.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F

from tasks.train.errors import BadTrainingRow, LossNotFinite, NoTrainingData


@dataclass(frozen=True, kw_only=True)
class SftConfig:
    """How to train; the defaults suit models of a few million parameters."""

    learning_rate: float = 2e-3
    batch_size: int = 32
    micro_batch_size: int = 16
    """Examples in one forward pass. A batch is random; its examples are sorted by length before
    they are cut into micro-batches, which saves padding without tying a step to one length."""
    epochs: int = 1
    max_steps: int | None = None
    """Stop after this many steps; None means the end of the last epoch."""
    warmup_steps: int = 20
    schedule: Literal["cosine", "constant"] = "cosine"
    """After warm-up: down to a tenth of the rate along a cosine, or constant."""
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    max_grad_norm: float = 1.0
    max_tokens: int = 2048
    """Longer examples are left out and counted, never cut."""
    seed: int = 0


@dataclass(frozen=True)
class Example:
    """Token ids of one row; the first `prompt_length` of them carry no loss."""

    ids: tuple[int, ...]
    prompt_length: int


@dataclass(frozen=True)
class StepMetrics:
    """What one optimizer step did."""

    step: int
    loss: float
    learning_rate: float
    grad_norm: float
    completion_tokens: int


@dataclass(frozen=True)
class SftResult:
    """Outcome of a training run; `tokens` counts prompt and completion without padding."""

    steps: int
    examples: int
    too_long: int
    tokens: int
    padding_share: float
    seconds: float
    cpu_seconds: float
    history: tuple[StepMetrics, ...] = field(repr=False)

    def mean_loss(self, first: int, last: int) -> float:
        """Mean loss over history[first:last], weighted by completion tokens."""
        part = self.history[first:last]
        weight = sum(step.completion_tokens for step in part)
        return sum(step.loss * step.completion_tokens for step in part) / weight


def render_row(tokenizer: Any, row: Mapping[str, Any], index: int = 0) -> tuple[str, str]:
    """A row's prompt under the chat template, and the completion that continues it.

    A closing assistant turn in `messages` is the answer itself and is left out of the prompt.
    Where the template opens the thought, the completion's own opening is not repeated.
    """
    messages = [dict(message) for message in row["messages"] or ()]
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    completion = row["completion"]
    if not messages:
        raise BadTrainingRow(index, "messages hold no turn before the answer")
    if not isinstance(completion, str) or not completion:
        raise BadTrainingRow(index, f"completion is {completion!r}")
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    opened = "<think>"
    if prompt.rstrip().endswith(opened) and completion.lstrip().startswith(opened):
        completion = completion.lstrip()[len(opened) :]
    return prompt, completion


def encode_rows(
    tokenizer: Any, rows: Sequence[Mapping[str, Any]], max_tokens: int
) -> tuple[list[Example], int]:
    """Examples of all rows that fit, each closed by the end token, and how many did not fit."""
    if not rows:
        raise NoTrainingData(0, 0, max_tokens)
    rendered = [render_row(tokenizer, row, index) for index, row in enumerate(rows)]
    prompts, completions = (
        tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        for texts in zip(*rendered, strict=True)
    )
    end = tokenizer.eos_token_id
    examples = [
        Example((*prompt, *completion, end), len(prompt))
        for prompt, completion in zip(prompts, completions, strict=True)
    ]
    fitting = [example for example in examples if len(example.ids) <= max_tokens]
    too_long = len(examples) - len(fitting)
    if not fitting:
        raise NoTrainingData(len(examples), too_long, max_tokens)
    return fitting, too_long


def epoch_batches(count: int, batch_size: int, rng: np.random.Generator) -> Iterator[list[int]]:
    """Indices of one epoch in random batches; each index once."""
    order = rng.permutation(count).tolist()
    for start in range(0, count, batch_size):
        yield order[start : start + batch_size]


def micro_batches(batch: Sequence[Example], size: int) -> list[list[Example]]:
    """The batch by length, in pieces of `size`."""
    ordered = sorted(batch, key=lambda example: len(example.ids))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def learning_rate_at(step: int, total: int, config: SftConfig) -> float:
    """Rate of step 0, 1, ...: linear warm-up, then cosine to a tenth, or constant."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - config.warmup_steps) / max(1, total - config.warmup_steps)
    return config.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, done))))


def loss_sum(model: Any, examples: Sequence[Example]) -> torch.Tensor:
    """Cross-entropy summed over the completion tokens of the examples."""
    width = max(len(example.ids) for example in examples)
    ids = torch.zeros(len(examples), width, dtype=torch.long)
    labels = torch.full((len(examples), width), -100)
    for row, example in enumerate(examples):
        ids[row, : len(example.ids)] = torch.tensor(example.ids)
        labels[row, example.prompt_length : len(example.ids)] = torch.tensor(
            example.ids[example.prompt_length :]
        )
    device = next(model.parameters()).device
    # the logits at a position score the next token; those before every completion are not made
    keep = width - min(example.prompt_length for example in examples) + 1
    logits = model(input_ids=ids.to(device), logits_to_keep=keep, use_cache=False).logits
    targets = labels[:, width - keep + 1 :].to(device)
    return F.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(),
        targets.flatten(),
        ignore_index=-100,
        reduction="sum",
    )


def backward(model: Any, batch: Sequence[Example], micro_batch_size: int) -> tuple[float, int, int]:
    """Gradients of the mean loss over all completion tokens of the batch.

    The mean is over the tokens of the whole batch, so the cut into micro-batches changes nothing
    but rounding. Returns loss, completion tokens and padded cells.
    """
    count = sum(len(example.ids) - example.prompt_length for example in batch)
    total, cells = 0.0, 0
    for part in micro_batches(batch, micro_batch_size):
        loss = loss_sum(model, part) / count
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
        cells += len(part) * len(part[-1].ids)
    return total, count, cells


def parameter_groups(model: Any, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices decay, vectors (norms, biases) do not."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]


def train(
    model: Any,
    tokenizer: Any,
    rows: Sequence[Mapping[str, Any]],
    config: SftConfig,
    on_step: Callable[[StepMetrics], None] | None = None,
) -> SftResult:
    """Train the model in place on rows with `messages` and `completion`."""
    begin, cpu_begin = time.perf_counter(), time.process_time()
    examples, too_long = encode_rows(tokenizer, rows, config.max_tokens)
    per_epoch = math.ceil(len(examples) / config.batch_size)
    total = per_epoch * config.epochs
    total = total if config.max_steps is None else min(total, config.max_steps)
    rng = np.random.Generator(np.random.Philox(config.seed))
    torch.manual_seed(config.seed)  # dropout, where a model has any
    optimizer = torch.optim.AdamW(
        parameter_groups(model, config.weight_decay), lr=config.learning_rate, betas=config.betas
    )
    history: list[StepMetrics] = []
    seen = tokens = cells = 0
    model.train()
    batches = (
        batch
        for _ in range(config.epochs)
        for batch in epoch_batches(len(examples), config.batch_size, rng)
    )
    for step, indices in zip(range(total), batches, strict=False):
        batch = [examples[index] for index in indices]
        rate = learning_rate_at(step, total, config)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
        loss, completion_tokens, step_cells = backward(model, batch, config.micro_batch_size)
        if not math.isfinite(loss):
            raise LossNotFinite(step, loss, rate)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
        optimizer.step()
        metrics = StepMetrics(step, loss, rate, norm.item(), completion_tokens)
        history.append(metrics)
        seen += len(batch)
        tokens += sum(len(example.ids) for example in batch)
        cells += step_cells
        if on_step is not None:
            on_step(metrics)
    model.eval()
    return SftResult(
        steps=len(history),
        examples=seen,
        too_long=too_long,
        tokens=tokens,
        padding_share=1 - tokens / cells,
        seconds=time.perf_counter() - begin,
        cpu_seconds=time.process_time() - cpu_begin,
        history=tuple(history),
    )
