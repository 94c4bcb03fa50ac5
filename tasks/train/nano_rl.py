"""Make the start policy of the RL rounds: `python -m tasks.train.nano_rl [--out DIR]`.

Supervised training (`tasks.train.sft`) on worked tasks of three kinds, stopped while the policy is
still weak, so that RL has something to do. A part of the prompts asks for a length, and the thought
beside it has a random amount of filler that does not keep to it: the policy knows the words of the
request and what could follow them, not what is wanted. One thread, a few minutes. Invariants: seeds
are fixed; no held-out prompt is trained on; weights are rounded to bfloat16 before they are
measured.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaForCausalLM

from tasks.train.curriculum import HELD_OUT_SEED, KINDS, STRIDE, TRAIN_SEED, Kind, held_out
from tasks.train.evaluate import SolveRate, load, solve_rate
from tasks.train.nano import DEFAULT_OUT, PHRASES, save
from tasks.train.nano_sizes import HEAD_DIM, HIDDEN, NanoSize
from tasks.train.nano_tokenizer import build_tokenizer, shared_phrases
from tasks.train.objective.config import LengthConfig
from tasks.train.sft import SftResult, StepMetrics, train

SIZE = NanoSize(
    name="rl",
    layers=3,
    heads=4,
    intermediate=384,
    parent=None,
    steps=800,
    release_step=800,
    learning_rate=2e-3,
    seed=5,
)
MIX = {"spell_backward": 1.0, "number_sorting": 3.0, "chain_sum": 1.0}
"""Kinds and their parts of the training mix."""
ASKED = 0.25
"""Share of the rows whose prompt asks for a length."""
TARGETS = (16, 24, 32, 40, 48)
FILLER = "."
MOST_FILLER = 28
HELD_OUT = 512
INSTRUCTION = LengthConfig().instruction


def kinds() -> list[Kind]:
    """The kinds that the policy is trained on."""
    return [kind for kind in KINDS if kind.name in MIX]


def make_tokenizer() -> Any:
    """Bytes, marks, and the fixed phrases of the three kinds and of a length request."""
    phrases = [*PHRASES, *(part for part in INSTRUCTION.split("{target}") if part)]
    for kind in kinds():
        phrases += shared_phrases([task.prompt for task in kind.tasks(TRAIN_SEED, 40)])
    return build_tokenizer(phrases)


def training_rows() -> list[dict[str, Any]]:
    """Rows for one pass, shuffled; a part of them asks for a length."""
    rows: list[dict[str, Any]] = []
    wanted = 1.2 * SIZE.steps * SIZE.batch_size / sum(MIX.values())
    for kind in kinds():
        reserved = {task.prompt for task in held_out(kind, HELD_OUT)}
        drawn = kind.tasks(TRAIN_SEED + STRIDE * SIZE.seed, round(wanted * MIX[kind.name]))
        rows += [task.row() for task in drawn if task.prompt not in reserved]
    rng = np.random.Generator(np.random.Philox(SIZE.seed))
    rows = [rows[index] for index in rng.permutation(len(rows))]
    return [_asking(row, rng) if rng.random() < ASKED else row for row in rows]


def _asking(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The row with a request for a length, and a thought whose length has nothing to do with it."""
    target = TARGETS[int(rng.integers(len(TARGETS)))]
    content = row["messages"][0]["content"] + INSTRUCTION.replace("{target}", str(target))
    filler = FILLER * int(rng.integers(MOST_FILLER + 1))
    completion = row["completion"].replace("<think>", f"<think>{filler}", 1)
    return {"messages": [{"role": "user", "content": content}], "completion": completion}


def measure(directory: Path) -> dict[str, tuple[SolveRate, SolveRate]]:
    """Per kind: the held-out rates at temperature 1 and greedy."""
    engine = load(directory, f"tracemill/nano-{SIZE.name}")
    rates = {}
    for kind in kinds():
        tasks = held_out(kind, HELD_OUT)
        rates[kind.name] = (solve_rate(engine, tasks, 1.0), solve_rate(engine, tasks, 0.0))
        print(f"  {kind.name}: " + " / ".join(f"{r.solved:.3f}" for r in rates[kind.name]))
    return rates


CARD = """# tracemill/nano-{name}

A very small language model made by this project as the start of its RL rounds: a Llama decoder with
{layers} layers of width {hidden} ({heads} heads of {head_dim}, MLP {intermediate}, tied embeddings)
and {parameters:,} parameters. It is weak on purpose: supervised training was stopped early.

- Files: safetensors in bfloat16; compute in float32. Apache-2.0, like the project.
- Tokens: 256 bytes, a few marks, and the fixed phrases of the task prompts ({vocabulary} in all).
  The chat template opens the thought (`<think>`).
- Made by `python -m tasks.train.nano_rl`. Start: random weights. Training: AdamW, learning rate
  {learning_rate:g} with warm-up and cosine, {steps} steps of {batch_size} examples, {tokens:,}
  tokens, loss on the completion only, {cpu_seconds:.0f} CPU seconds on one thread of a busy 2-core
  machine.
- Data: tasks of the kinds below in the parts {mix}, drawn from seed {train_seed:,} on, each with a
  short thought that the project wrote by rule. {asked:.0%} of the prompts ask for a length in
  tokens ({targets}); the thoughts beside them begin with 0 to {filler} filler tokens, drawn without
  regard to what was asked. No prompt of the held-out set was trained on.

## Held-out solve rates

{count} tasks per kind with different prompts from seed {held_out_seed:,} on, no length asked;
solved = score 1 by the project's verifiers. One sample per task: the standard error is about 0.02.

| kind | settings | solved at temperature 1 | solved greedy |
|---|---|---|---|
{table}
"""


def render_card(
    vocabulary: int,
    parameters: int,
    result: SftResult,
    rates: dict[str, tuple[SolveRate, SolveRate]],
) -> str:
    """The card's text; `rates` maps a kind to its figures at temperature 1 and greedy."""
    rows = [
        f"| {kind.name} | {', '.join(f'{k}={v}' for k, v in kind.settings.items())} "
        f"| {rates[kind.name][0].solved:.3f} | {rates[kind.name][1].solved:.3f} |"
        for kind in kinds()
    ]
    return CARD.format(
        name=SIZE.name,
        layers=SIZE.layers,
        hidden=HIDDEN,
        heads=SIZE.heads,
        head_dim=HEAD_DIM,
        intermediate=SIZE.intermediate,
        parameters=parameters,
        vocabulary=vocabulary,
        learning_rate=SIZE.learning_rate,
        steps=result.steps,
        batch_size=SIZE.batch_size,
        tokens=result.tokens,
        cpu_seconds=result.cpu_seconds,
        mix=", ".join(f"{name} {part:g}" for name, part in MIX.items()),
        train_seed=TRAIN_SEED,
        asked=ASKED,
        targets=", ".join(map(str, TARGETS)),
        filler=MOST_FILLER,
        count=HELD_OUT,
        held_out_seed=HELD_OUT_SEED,
        table="\n".join(rows),
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Train the start policy of the RL rounds.")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    directory = parser.parse_args().out / SIZE.name
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    torch.manual_seed(SIZE.seed)
    model = LlamaForCausalLM(SIZE.config(tokenizer))

    def on_step(metrics: StepMetrics) -> None:
        if (metrics.step + 1) % 100 == 0:
            print(f"step {metrics.step + 1}: loss {metrics.loss:.3f}", flush=True)

    result = train(model, tokenizer, training_rows(), SIZE.training(), on_step)
    save(model, tokenizer, directory)
    card = render_card(len(tokenizer), model.num_parameters(), result, measure(directory))
    (directory / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
