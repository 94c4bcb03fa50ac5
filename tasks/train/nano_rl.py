"""Make the RL rounds' start policies: `python -m tasks.train.nano_rl [--model rl rl-lengths]`.

nano-rl: a short supervised training (`tasks.train.sft`) of nano-m on two kinds of task: it spells
words backward and sorts three numbers. The policy is weak because its teacher grows careless: in
most of the last demonstrations two neighbours have changed places, at random, so they end in a
wrong answer. A part of the prompts asks for a length, and the thought beside it has a random amount
of filler that does not keep to it: the policy knows the words of the request and what could follow
them, not what is wanted.

nano-rl-lengths: nano-rl, trained a little further on prompts that all ask for a length. The filler
is what the length needs plus normal noise, so the policy follows such a request, but loosely; it
stays careless in its answers.

One thread, a few minutes each. Invariants: seeds are fixed; no held-out prompt is trained on;
weights are rounded to bfloat16 before they are measured.
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

from infra.inference.transformers_engine import TransformersEngine
from tasks.train import demonstrations as think
from tasks.train.curriculum import (
    HELD_OUT_SEED,
    STRIDE,
    TRAIN_SEED,
    GymKind,
    NanoTask,
    held_out,
)
from tasks.train.evaluate import load, solve_rate
from tasks.train.nano import DEFAULT_OUT, save
from tasks.train.nano_rl_card import CARD, LENGTHS_CARD
from tasks.train.objective.config import LengthConfig
from tasks.train.objective.lengths import instruction
from tasks.train.sft import SftConfig, SftResult, StepMetrics, encode_rows, train

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
    asked: float = 0.25
    """Share of the rows whose prompt asks for a length."""
    targets: tuple[int, ...] = (16, 24, 32, 40, 48)
    """The lengths asked for, in output tokens."""
    noise: float | None = None
    """Standard deviation, in tokens, of what the filler misses the length by; None: the filler has
    nothing to do with it."""


@dataclass(frozen=True)
class Recipe:
    """How a model is made."""

    parent: str
    parts: tuple[Part, ...]


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
LOOSE = Part(
    SftConfig(
        learning_rate=1e-3,
        batch_size=32,
        micro_batch_size=32,
        max_steps=200,
        warmup_steps=10,
        seed=11,
    ),
    sorting=1.0,
    slips=0.72,
    asked=1.0,
    targets=(24, 32, 40, 48),
    noise=12.0,
)
"""Its targets are those of the profile `rl-lengths`."""
MODELS = {"rl": Recipe("m", (CAREFUL, CARELESS)), "rl-lengths": Recipe("rl", (LOOSE,))}
FILLER = "."
"""One token."""
MOST_FILLER = 28
MOST_ASKED_FILLER = 40
"""With it no demonstration is longer than the 64 tokens of the profile `rl-lengths`."""
HELD_OUT = 512


def training_rows(part: Part, tokenizer: Any) -> list[dict[str, Any]]:
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
    return [
        _asking(row, part, rng, tokenizer) if rng.random() < part.asked else row for row in rows
    ]


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


def _asking(
    row: dict[str, Any], part: Part, rng: np.random.Generator, tokenizer: Any
) -> dict[str, Any]:
    """The row with a request for a length, and with filler in its thought."""
    target = part.targets[int(rng.integers(len(part.targets)))]
    if part.noise is None:
        filler = int(rng.integers(MOST_FILLER + 1))
    else:
        (plain,), _ = encode_rows(tokenizer, [row], part.config.max_tokens)
        wanted = target - (len(plain.ids) - plain.prompt_length)
        filler = round(float(np.clip(rng.normal(wanted, part.noise), 0, MOST_ASKED_FILLER)))
    content = row["messages"][0]["content"] + instruction(target, LengthConfig())
    completion = row["completion"].replace("<think>", f"<think>{FILLER * filler}", 1)
    return {"messages": [{"role": "user", "content": content}], "completion": completion}


def measured(kind: GymKind, profile: GymKind) -> list[NanoTask]:
    """Held-out tasks that the profile has too; no prompt of them is trained on."""
    least = profile.settings.get("min_word_len", 0)

    def letters(task: NanoTask) -> int:
        entry = json.loads(task.verification_info["reasoning_gym_entry"])
        return len(entry["metadata"].get("word", ""))

    return [task for task in held_out(kind, HELD_OUT) if letters(task) >= least]


def solve_table(engine: TransformersEngine) -> str:
    """Per kind: the held-out rates at temperature 1 and greedy."""
    rows = []
    for kind, profile in zip(KINDS, MEASURED, strict=True):
        tasks = measured(kind, profile)
        settings = ", ".join(f"{key}={value}" for key, value in profile.settings.items())
        solved = [f"{solve_rate(engine, tasks, t).solved:.3f}" for t in (1.0, 0.0)]
        rows.append(f"| {kind.name} | {settings} | {len(tasks)} | {' | '.join(solved)} |")
    return "\n".join(rows)


def length_table(engine: TransformersEngine) -> str:
    """Per kind and length asked for: output tokens and solve rate at temperature 1."""
    rows = []
    for kind, profile in zip(KINDS, MEASURED, strict=True):
        tasks = measured(kind, profile)
        for target in LOOSE.targets:
            request = instruction(target, LengthConfig())
            rate = solve_rate(
                engine, [replace(task, prompt=task.prompt + request) for task in tasks], 1.0
            )
            missed = np.abs(np.array(rate.lengths) - target).mean()
            rows.append(
                f"| {kind.name} | {target} | {len(tasks)} | {np.mean(rate.lengths):.1f} "
                f"| {missed:.2f} | {rate.solved:.3f} |"
            )
    return "\n".join(rows)


def render_card(
    name: str, parameters: int, results: Sequence[SftResult], engine: TransformersEngine
) -> str:
    """The card's text, measured with the engine."""
    first = MODELS[name].parts[0]
    return (CARD if name == "rl" else LENGTHS_CARD).format(
        parent=MODELS[name].parent,
        parameters=parameters,
        batch_size=first.config.batch_size,
        steps=[result.steps for result in results],
        rates=[part.config.learning_rate for part in MODELS[name].parts],
        tokens=sum(result.tokens for result in results),
        cpu_seconds=sum(result.cpu_seconds for result in results),
        first=first,
        last=MODELS[name].parts[-1],
        targets=", ".join(map(str, first.targets)),
        filler=MOST_FILLER if first.noise is None else MOST_ASKED_FILLER,
        train_seed=TRAIN_SEED,
        held_out_seed=HELD_OUT_SEED,
        table=solve_table(engine) if name == "rl" else length_table(engine),
    )


def make(name: str, out: Path) -> None:
    """Train a model from its parent, which lies in `out` or is the committed one; measure it."""
    model_dir, parent = out / name, MODELS[name].parent
    start = next(root / parent for root in (out, DEFAULT_OUT) if (root / parent).is_dir())
    tokenizer = AutoTokenizer.from_pretrained(start)

    def on_step(metrics: StepMetrics) -> None:
        if (metrics.step + 1) % 20 == 0:
            print(f"nano-{name} step {metrics.step + 1}: loss {metrics.loss:.3f}", flush=True)

    results: list[SftResult] = []
    for part in MODELS[name].parts:
        model = LlamaForCausalLM.from_pretrained(start, dtype=torch.float32)
        rows = training_rows(part, tokenizer)
        results.append(train(model, tokenizer, rows, part.config, on_step))
        save(model, tokenizer, model_dir)
        start = model_dir
    engine = load(model_dir, f"tracemill/nano-{name}")
    card = render_card(name, model.num_parameters(), results, engine)
    (model_dir / "README.md").write_text(card, encoding="utf-8")
    print(card)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Train the start policies of the RL rounds.")
    parser.add_argument("--model", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.model:
        make(name, given.out)


if __name__ == "__main__":
    main()
