"""Make the start policy of the RL rounds: `python -m tasks.train.nano_rl [--out DIR]`.

A short supervised training (`tasks.train.sft`) of nano-m on two kinds of task, stopped while the
policy is still weak: it spells words longer than those of nano-m and sorts three or four numbers,
each about one time in three. A part of the prompts asks for a length, and the thought beside it has
a random amount of filler that does not keep to it: the policy knows the words of the request and
what could follow them, not what is wanted. One thread, a few minutes. Invariants: seeds are fixed;
no held-out prompt is trained on; weights are rounded to bfloat16 before they are measured.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from tasks.train import demonstrations as think
from tasks.train.curriculum import HELD_OUT_SEED, STRIDE, TRAIN_SEED, GymKind, held_out
from tasks.train.evaluate import SolveRate, load, solve_rate
from tasks.train.nano import DEFAULT_OUT, save
from tasks.train.objective.config import LengthConfig
from tasks.train.sft import SftConfig, SftResult, StepMetrics, train

NAME = "rl"
PARENT = "m"
KINDS = (
    GymKind("spell_backward", think.think_spell, {"min_word_len": 8, "max_word_len": 10}, 1.0),
    GymKind(
        "number_sorting",
        think.think_sort,
        {"min_numbers": 3, "max_numbers": 4, "max_decimals": 0, "min_value": 0, "max_value": 99},
        6.0,
    ),
)
MEASURED = (
    GymKind("spell_backward", think.think_spell, {"min_word_len": 8, "max_word_len": 9}),
    GymKind(
        "number_sorting",
        think.think_sort,
        {"min_numbers": 3, "max_numbers": 3, "max_decimals": 0, "min_value": 0, "max_value": 99},
    ),
)
"""The kinds as the profile `rl-tasks` has them."""
TRAINING = SftConfig(
    learning_rate=1e-3,
    batch_size=32,
    micro_batch_size=32,
    max_steps=200,
    warmup_steps=10,
    seed=9,
)
RELEASE_STEP = 80
"""The published weights are those after this step."""
ASKED = 0.25
"""Share of the rows whose prompt asks for a length."""
TARGETS = (16, 24, 32, 40, 48)
FILLER = "."
MOST_FILLER = 28
HELD_OUT = 512
INSTRUCTION = LengthConfig().instruction


def training_rows() -> list[dict[str, Any]]:
    """Rows for one pass, shuffled; a part of them asks for a length."""
    rows: list[dict[str, Any]] = []
    wanted = 1.1 * (TRAINING.max_steps or 0) * TRAINING.batch_size
    for kind in KINDS:
        reserved = {task.prompt for task in held_out(kind, HELD_OUT)}
        count = round(wanted * kind.weight / sum(kind.weight for kind in KINDS))
        drawn = kind.tasks(TRAIN_SEED + STRIDE * TRAINING.seed, count)
        rows += [task.row() for task in drawn if task.prompt not in reserved]
    rng = np.random.Generator(np.random.Philox(TRAINING.seed))
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
    engine = load(directory, f"tracemill/nano-{NAME}")
    rates = {}
    for kind in MEASURED:
        tasks = held_out(kind, HELD_OUT)
        rates[kind.name] = (solve_rate(engine, tasks, 1.0), solve_rate(engine, tasks, 0.0))
        print(f"  {kind.name}: " + " / ".join(f"{r.solved:.3f}" for r in rates[kind.name]))
    return rates


CARD = """# tracemill/nano-{name}

A very small language model made by this project as the start of its RL rounds: nano-{parent}, a
Llama decoder of {parameters:,} parameters, trained a little further. It is weak on purpose.

- Files: safetensors in bfloat16; compute in float32. Apache-2.0, like the project.
- Tokens and chat template are those of nano-{parent}.
- Made by `python -m tasks.train.nano_rl`. Training: AdamW, learning rate {learning_rate:g} with
  warm-up and cosine, {steps} steps of {batch_size} examples, {tokens:,} tokens, loss on the
  completion only, {cpu_seconds:.0f} CPU seconds on one thread of a busy 2-core machine. These are
  the weights after step {release_step}.
- Data: tasks in the parts {mix}, drawn from seed {train_seed:,} on, each with a
  short thought that the project wrote by rule. {asked:.0%} of the prompts ask for a length in
  tokens ({targets}); the thoughts beside them begin with 0 to {filler} filler tokens, drawn without
  regard to what was asked. No prompt of the held-out set was trained on.

## Held-out solve rates

{count} tasks per kind, as the profile `rl-tasks` has them, from seed {held_out_seed:,} on;
solved = score 1 by the project's verifiers. One sample per task: the standard error is about 0.02.

| kind | settings | solved at temperature 1 | solved greedy |
|---|---|---|---|
{table}
"""


def render_card(
    parameters: int, result: SftResult, rates: dict[str, tuple[SolveRate, SolveRate]]
) -> str:
    """The card's text; `rates` maps a kind to its figures at temperature 1 and greedy."""
    rows = [
        f"| {kind.name} | {', '.join(f'{k}={v}' for k, v in kind.settings.items())} "
        f"| {rates[kind.name][0].solved:.3f} | {rates[kind.name][1].solved:.3f} |"
        for kind in MEASURED
    ]
    trained = [
        f"{kind.name} {kind.weight:g} ({', '.join(f'{k}={v}' for k, v in kind.settings.items())})"
        for kind in KINDS
    ]
    return CARD.format(
        name=NAME,
        parent=PARENT,
        parameters=parameters,
        learning_rate=TRAINING.learning_rate,
        steps=result.steps,
        release_step=RELEASE_STEP,
        batch_size=TRAINING.batch_size,
        tokens=result.tokens,
        cpu_seconds=result.cpu_seconds,
        mix=", ".join(trained),
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
    directory = parser.parse_args().out / NAME
    torch.set_num_threads(1)
    parent = DEFAULT_OUT / PARENT
    tokenizer = AutoTokenizer.from_pretrained(parent)
    model = LlamaForCausalLM.from_pretrained(parent, dtype=torch.float32)

    def on_step(metrics: StepMetrics) -> None:
        step = metrics.step + 1
        if step % 20 == 0:
            print(f"step {step}: loss {metrics.loss:.3f}", flush=True)
        if step == RELEASE_STEP:
            save(model, tokenizer, directory)

    result = train(model, tokenizer, training_rows(), TRAINING, on_step)
    card = render_card(model.num_parameters(), result, measure(directory))
    (directory / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
