"""Make the nano models: `python -m tasks.train.nano [--size s m l] [--out DIR]`.

Builds the tokenizer, draws tasks, trains each size from scratch, measures it on held-out tasks and
writes weights, tokenizer and card to `<out>/<size>/`. One thread; about 20 minutes for all three
on an idle core. Invariants: seeds are fixed, so the same machine, torch and thread count give the
same files; weights are rounded to bfloat16 before they are measured, so the files hold exactly
what the cards describe.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM

from tasks.train import nano_card
from tasks.train.curriculum import KINDS, TRAIN_SEED, held_out, training_tasks
from tasks.train.evaluate import load, solve_rate
from tasks.train.nano_sizes import SIZES, NanoSize
from tasks.train.nano_tokenizer import build_tokenizer, shared_phrases
from tasks.train.sft import StepMetrics, train

DEFAULT_OUT = Path(__file__).parents[2] / "infra" / "models" / "nano"
HELD_OUT = 256
"""Held-out tasks per kind."""

PHRASES = ("<answer>", "</answer>", "['", ".0', '", ".0']", ".0, ")  # fmt: skip
"""Beside the fixed parts of prompts: the pieces that answers are made of."""


def make_tokenizer() -> Any:
    """The tokenizer that all sizes share."""
    phrases = list(PHRASES)
    for kind in KINDS:
        phrases += shared_phrases([task.prompt for task in kind.tasks(TRAIN_SEED, 40)])
    return build_tokenizer(phrases)


def report(metrics: StepMetrics) -> None:
    """A line of progress every hundred steps."""
    if (metrics.step + 1) % 100 == 0:
        print(f"step {metrics.step + 1}: loss {metrics.loss:.3f}", flush=True)


def new_model(size: NanoSize, tokenizer: Any) -> Any:
    """Random weights from a fixed seed."""
    torch.manual_seed(0)
    return LlamaForCausalLM(size.config(tokenizer))


def training_rows(size: NanoSize) -> list[dict[str, Any]]:
    """Rows for one pass; a tenth more than the steps need, in place of those held out."""
    tasks = training_tasks(int(size.steps * size.batch_size * 1.1), HELD_OUT, seed=0)
    return [task.row() for task in tasks]


def make(size: NanoSize, tokenizer: Any, out: Path) -> None:
    """Train, measure and describe one size."""
    directory = out / size.name
    model = new_model(size, tokenizer)
    result = train(model, tokenizer, training_rows(size), size.training(), report)
    parameters = model.num_parameters()
    print(f"nano-{size.name}: {parameters} parameters, {result.seconds:.0f} s", flush=True)
    model.to(torch.bfloat16).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    engine = load(directory, f"tracemill/nano-{size.name}")
    rates = {}
    for kind in KINDS:
        tasks = held_out(kind, HELD_OUT)
        rates[kind.name] = (solve_rate(engine, tasks, 1.0), solve_rate(engine, tasks, 0.0))
        print(f"  {kind.name}: " + " / ".join(f"{r.solved:.3f}" for r in rates[kind.name]))
    (directory / "README.md").write_text(
        nano_card.render(size, parameters, len(tokenizer), result, rates)
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Train the nano models from scratch.")
    parser.add_argument("--size", nargs="+", choices=sorted(SIZES), default=list(SIZES))
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    for name in arguments.size:
        make(SIZES[name], tokenizer, arguments.out)


if __name__ == "__main__":
    main()
