"""The card of a nano model: what it is, how it was trained, what it solves."""

from collections.abc import Mapping

from tasks.train.curriculum import HELD_OUT_SEED, KINDS, TRAIN_SEED
from tasks.train.evaluate import SolveRate
from tasks.train.nano_sizes import HEAD_DIM, HIDDEN, NanoSize
from tasks.train.nano_tokenizer import CONTEXT
from tasks.train.sft import SftResult

TEXT = """# tracemill/nano-{name}

A very small language model made by this project for its own tests, local runs and RL rounds: a
Llama decoder with {layers} layers of width {hidden} ({heads} heads of {head_dim}, MLP
{intermediate}, tied embeddings, context {context}) and {parameters:,} parameters. It knows a few
task kinds and nothing else.

- Files: safetensors in bfloat16; compute in float32. Apache-2.0, like the project.
- Tokens: 256 bytes, a few marks, and the fixed phrases of the task prompts ({vocabulary} in all).
  Any UTF-8 text encodes and decodes without loss. The chat template opens the thought (`<think>`).
- Made by `python -m tasks.train.nano`. Start: {start}. Training: AdamW, learning rate
  {learning_rate:g} with warm-up and cosine, {steps} steps of {batch_size} examples, {tokens:,}
  tokens, loss on the completion only, {cpu_seconds:.0f} CPU seconds on one thread of a busy 2-core
  machine. {released}
- Data: tasks of the kinds below drawn from seed {train_seed:,} on, each with a short thought that
  the project wrote by rule. No prompt of the held-out set was trained on.

## Held-out solve rates

{count} tasks per kind with different prompts, drawn from seed {held_out_seed:,} on; solved = score
1 by the project's verifiers. One sample per task: the standard error is about 0.03.

| kind | settings | solved at temperature 1 | mean score | solved greedy |
|---|---|---|---|---|
{table}
"""


def render(
    size: NanoSize,
    vocabulary: int,
    parameters: int,
    result: SftResult,
    rates: Mapping[str, tuple[SolveRate, SolveRate]],
) -> str:
    """The card's text; `rates` maps a kind to its figures at temperature 1 and greedy."""
    rows = []
    for kind in KINDS:
        sampled, greedy = rates[kind.name]
        settings = ", ".join(f"{key}={value}" for key, value in kind.settings.items())
        rows.append(
            f"| {kind.name} | {settings} | {sampled.solved:.3f} | {sampled.mean_score:.3f} "
            f"| {greedy.solved:.3f} |"
        )
    start = "random weights"
    if size.parent is not None:
        start = f"the last training state of nano-{size.parent}, grown without changing its output"
    released = "These are the weights after the last step."
    if size.release_step < size.steps:
        released = (
            f"These are the weights after step {size.release_step}, kept weak on purpose; the last "
            "state is the start of the next size."
        )
    return TEXT.format(
        name=size.name,
        layers=size.layers,
        hidden=HIDDEN,
        heads=size.heads,
        head_dim=HEAD_DIM,
        intermediate=size.intermediate,
        context=CONTEXT,
        parameters=parameters,
        vocabulary=vocabulary,
        start=start,
        learning_rate=size.learning_rate,
        steps=result.steps,
        batch_size=size.batch_size,
        tokens=result.tokens,
        cpu_seconds=result.cpu_seconds,
        released=released,
        train_seed=TRAIN_SEED,
        count=next(iter(rates.values()))[0].tasks,
        held_out_seed=HELD_OUT_SEED,
        table="\n".join(rows),
    )
