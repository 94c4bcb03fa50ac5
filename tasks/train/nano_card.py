"""The card of a nano model: what it is, how it was trained, what it solves."""

from collections.abc import Mapping

from tasks.train.curriculum import HELD_OUT_SEED, KINDS, TRAIN_SEED
from tasks.train.evaluate import SolveRate
from tasks.train.nano_sizes import NanoSize
from tasks.train.sft import SftResult

TEXT = """# tracemill/nano-{name}

A very small language model made by this project for its own tests, local runs and RL rounds: a
Llama decoder with {layers} layers of width {hidden} ({heads} heads, MLP {intermediate}, tied
embeddings, context 2048) and {parameters:,} parameters. It knows a few task kinds and nothing else.

- Files: safetensors in bfloat16; compute in float32. Apache-2.0, like the project.
- Tokens: 256 bytes, a few marks, and the fixed phrases of the task prompts ({vocabulary} in all).
  Any UTF-8 text encodes and decodes without loss. The chat template opens the thought (`<think>`).
- Made by `python -m tasks.train.nano --size {name}`: {steps} steps of {batch_size} examples
  (AdamW, learning rate {learning_rate:g}, cosine), {examples:,} examples with {tokens:,} tokens,
  {seconds:.0f} s on one thread of a busy 2-core machine. Mean loss of the last 50 steps:
  {loss:.3f}. No pretraining; loss on the completion only.
- Data: tasks of the kinds below drawn from seed {train_seed:,} on, each with a short thought that
  the project wrote by rule. No prompt of the held-out set was trained on.

## Held-out solve rates

{count} tasks per kind with different prompts, drawn from seed {held_out_seed:,} on; solved = score
1 by the project's verifiers. One sample per task, so about +-0.03.

| kind | settings | solved at temperature 1 | mean score | solved greedy |
|---|---|---|---|---|
{table}
"""


def render(
    size: NanoSize,
    parameters: int,
    vocabulary: int,
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
    return TEXT.format(
        name=size.name,
        hidden=size.hidden,
        layers=size.layers,
        heads=size.heads,
        intermediate=size.intermediate,
        learning_rate=size.learning_rate,
        batch_size=size.batch_size,
        parameters=parameters,
        vocabulary=vocabulary,
        steps=result.steps,
        examples=result.examples,
        tokens=result.tokens,
        seconds=result.seconds,
        loss=result.mean_loss(-50, result.steps),
        count=next(iter(rates.values()))[0].tasks,
        train_seed=TRAIN_SEED,
        held_out_seed=HELD_OUT_SEED,
        table="\n".join(rows),
    )
