"""Make the start policy of the RL rounds: `python -m tasks.train.nano_rl [--out DIR]`.

A short supervised training (`tasks.train.sft`) of nano-m on two kinds of task: it spells words
backward and sorts three numbers. The policy is weak because its teacher grows careless: in most of
the last demonstrations two neighbours have changed places, at random, so they end in a wrong
answer. A part of the prompts asks for a length, and the thought beside it has a random amount of
filler that does not keep to it: the policy knows the words of the request and what could follow
them, not what is wanted. One thread, a few minutes. Invariants: seeds are fixed; no held-out prompt
is trained on; weights are rounded to bfloat16 before they are measured.
"""

import argparse
import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from tasks.train import demonstrations as think
from tasks.train.curriculum import (
    HELD_OUT_SEED,
    STRIDE,
    TRAIN_SEED,
    GymKind,
    NanoTask,
    held_out,
)
from tasks.train.evaluate import SolveRate, load, solve_rate
from tasks.train.nano import DEFAULT_OUT, save
from tasks.train.objective.config import LengthConfig
from tasks.train.sft import SftConfig, SftResult, StepMetrics, train

NAME = "rl"
PARENT = "m"
KINDS = (
    GymKind("spell_backward", think.think_spell, {"min_word_len": 4, "max_word_len": 6}),
    GymKind(
        "number_sorting",
        think.think_sort,
        {"min_numbers": 3, "max_numbers": 3, "max_decimals": 0, "min_value": 10, "max_value": 99},
    ),
)
MEASURED = (replace(KINDS[0], settings={"min_word_len": 5, "max_word_len": 6}), KINDS[1])
"""As the profile `rl-tasks` has them."""


@dataclass(frozen=True)
class Part:
    """A part of the training."""

    config: SftConfig
    sorting: float
    """Tasks of sorting for each word to spell."""
    slips: float
    """Share of the demonstrations that have a slip."""


CAREFUL = Part(
    SftConfig(
        learning_rate=2e-3,
        batch_size=32,
        micro_batch_size=32,
        max_steps=420,
        warmup_steps=10,
        seed=9,
    ),
    sorting=4.0,
    slips=0.0,
)
CARELESS = Part(
    SftConfig(
        learning_rate=5e-4,
        batch_size=32,
        micro_batch_size=32,
        max_steps=40,
        warmup_steps=5,
        seed=8,
    ),
    sorting=1.0,
    slips=0.72,
)
ASKED = 0.25
"""Share of the rows whose prompt asks for a length."""
TARGETS = (16, 24, 32, 40, 48)
FILLER = "."
MOST_FILLER = 28
HELD_OUT = 512
INSTRUCTION = LengthConfig().instruction


def training_rows(part: Part) -> list[dict[str, Any]]:
    """Rows for one pass; a part of them has a slip, a part asks for a length."""
    seed, steps = part.config.seed, part.config.max_steps or 0
    rng = np.random.Generator(np.random.Philox(seed))
    rows: list[dict[str, Any]] = []
    for kind, weight in zip(KINDS, (1.0, part.sorting), strict=True):
        reserved = {task.prompt for task in held_out(kind, HELD_OUT)}
        count = round(1.1 * steps * part.config.batch_size * weight / (1.0 + part.sorting))
        for task in kind.tasks(TRAIN_SEED + STRIDE * seed, count):
            if task.prompt not in reserved:
                shown = with_slip(kind, task, rng) if rng.random() < part.slips else task
                rows.append(shown.row())
    return [_asking(row, rng) if rng.random() < ASKED else row for row in rows]


def with_slip(kind: GymKind, task: NanoTask, rng: np.random.Generator) -> NanoTask:
    """The task demonstrated without care."""
    entry = json.loads(task.verification_info["reasoning_gym_entry"])
    return replace(task, completion=kind.completion(slipped(kind.name, entry, rng)))


def slipped(name: str, entry: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """An entry whose answer has two neighbours, letters or numbers, in each other's place."""
    changed = copy.deepcopy(dict(entry))
    facts = changed["metadata"]
    spelled = name == "spell_backward"
    answer = list(facts["word"][::-1] if spelled else facts["sorted_numbers"])
    place = int(rng.integers(len(answer) - 1))
    answer[place], answer[place + 1] = answer[place + 1], answer[place]
    if spelled:
        changed["answer"] = "".join(answer)
        facts["word"] = changed["answer"][::-1]
    else:
        changed["answer"], facts["sorted_numbers"] = str(answer), answer
    return changed


def _asking(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The row with a request for a length, and a thought whose length has nothing to do with it."""
    target = TARGETS[int(rng.integers(len(TARGETS)))]
    content = row["messages"][0]["content"] + INSTRUCTION.replace("{target}", str(target))
    filler = FILLER * int(rng.integers(MOST_FILLER + 1))
    completion = row["completion"].replace("<think>", f"<think>{filler}", 1)
    return {"messages": [{"role": "user", "content": content}], "completion": completion}


def measured(kind: GymKind, profile: GymKind) -> list[NanoTask]:
    """Held-out tasks that the profile has too; no prompt of them is trained on."""
    least = profile.settings.get("min_word_len", 0)

    def letters(task: NanoTask) -> int:
        entry = json.loads(task.verification_info["reasoning_gym_entry"])
        return len(entry["metadata"].get("word", ""))

    return [task for task in held_out(kind, HELD_OUT) if letters(task) >= least]


def measure(directory: Path) -> dict[str, tuple[SolveRate, SolveRate]]:
    """Per kind: the held-out rates at temperature 1 and greedy."""
    engine = load(directory, f"tracemill/nano-{NAME}")
    rates = {}
    for kind, profile in zip(KINDS, MEASURED, strict=True):
        tasks = measured(kind, profile)
        rates[kind.name] = (solve_rate(engine, tasks, 1.0), solve_rate(engine, tasks, 0.0))
        print(f"  {kind.name}: " + " / ".join(f"{r.solved:.3f}" for r in rates[kind.name]))
    return rates


CARD = """# tracemill/nano-{name}

A very small language model made by this project as the start of its RL rounds: nano-{parent}, a
Llama decoder of {parameters:,} parameters, trained a little further. It is weak on purpose: it has
learned to be careless.

- Files: safetensors in bfloat16; compute in float32. Apache-2.0, like the project.
- Tokens and chat template are those of nano-{parent}.
- Made by `python -m tasks.train.nano_rl`. Training: AdamW, loss on the completion only, first
  {careful} steps of {batch_size} examples at learning rate {careful_rate:g}, then {careless} at
  {careless_rate:g}, warm-up and cosine each; {tokens:,} tokens, {cpu_seconds:.0f} CPU seconds on
  one thread of a busy 2-core machine.
- Data: tasks of the kinds below, but words of 4 to 6 letters; {sorting:g} to sort for each to
  spell, in the second part as many; drawn from seed {train_seed:,} on, each with a short thought
  that the project wrote by rule. Of those in the second part {slips:.0%} have a slip: two
  neighbours, letters or numbers, are in each other's place in the thought and in the answer.
  {asked:.0%} of the prompts ask for a length in tokens ({targets}); the thoughts beside them begin
  with 0 to {filler} filler tokens, drawn without regard to what was asked. No prompt of the
  held-out set was trained on.

## Held-out solve rates

Tasks as the profile `rl-tasks` has them, from seed {held_out_seed:,} on; solved = score 1 by the
project's verifiers. One sample per task: the standard error is about 0.025.

| kind | settings | tasks | solved at temperature 1 | solved greedy |
|---|---|---|---|---|
{table}
"""


def render_card(
    parameters: int,
    parts: Sequence[SftResult],
    rates: dict[str, tuple[SolveRate, SolveRate]],
) -> str:
    """The card's text; `rates` maps a kind to its figures at temperature 1 and greedy."""
    rows = [
        f"| {kind.name} | {', '.join(f'{k}={v}' for k, v in kind.settings.items())} "
        f"| {rates[kind.name][0].tasks} | "
        + " | ".join(f"{rate.solved:.3f}" for rate in rates[kind.name])
        + " |"
        for kind in MEASURED
    ]
    return CARD.format(
        name=NAME,
        parent=PARENT,
        parameters=parameters,
        careful=parts[0].steps,
        careful_rate=CAREFUL.config.learning_rate,
        careless=parts[1].steps,
        careless_rate=CARELESS.config.learning_rate,
        slips=CARELESS.slips,
        batch_size=CAREFUL.config.batch_size,
        tokens=sum(part.tokens for part in parts),
        cpu_seconds=sum(part.cpu_seconds for part in parts),
        sorting=CAREFUL.sorting,
        train_seed=TRAIN_SEED,
        asked=ASKED,
        targets=", ".join(map(str, TARGETS)),
        filler=MOST_FILLER,
        held_out_seed=HELD_OUT_SEED,
        table="\n".join(rows),
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Train the start policy of the RL rounds.")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    directory = parser.parse_args().out / NAME
    torch.set_num_threads(1)
    start = DEFAULT_OUT / PARENT
    tokenizer = AutoTokenizer.from_pretrained(start)

    def on_step(metrics: StepMetrics) -> None:
        if (metrics.step + 1) % 20 == 0:
            print(f"step {metrics.step + 1}: loss {metrics.loss:.3f}", flush=True)

    parts: list[SftResult] = []
    for part in (CAREFUL, CARELESS):
        model = LlamaForCausalLM.from_pretrained(start, dtype=torch.float32)
        parts.append(train(model, tokenizer, training_rows(part), part.config, on_step))
        save(model, tokenizer, directory)
        start = directory
    card = render_card(model.num_parameters(), parts, measure(directory))
    (directory / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
