"""Make the nano models: `python -m tasks.train.nano [--size s m l] [--out DIR] [--work DIR]`.

Builds the tokenizer, draws tasks, trains the sizes one after the other (the larger ones grow from
the smaller), measures each on held-out tasks and writes weights, tokenizer and card to
`<out>/<size>/`. A size's last state stays in `<work>/<size>/` as the start of the next. One thread;
about 15 minutes for all three on an idle core. Invariants: seeds are fixed, so the same machine,
torch and thread count give the same files; weights are rounded to bfloat16 before they are measured
or grown, so the files hold exactly what the cards describe.
"""

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM

from tasks.train import nano_card
from tasks.train.curriculum import KINDS, TRAIN_SEED, held_out, training_tasks
from tasks.train.evaluate import SolveRate, load, solve_rate
from tasks.train.grow import grow
from tasks.train.nano_sizes import SIZES, NanoSize
from tasks.train.nano_tokenizer import build_tokenizer, shared_phrases
from tasks.train.sft import SftResult, StepMetrics, train

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


def start_model(size: NanoSize, tokenizer: Any, work: Path) -> Any:
    """Random weights from the size's seed, or those grown from its parent's last state."""
    torch.manual_seed(size.seed)
    if size.parent is None:
        return LlamaForCausalLM(size.config(tokenizer))
    parent = LlamaForCausalLM.from_pretrained(work / size.parent, dtype=torch.float32)
    return grow(parent, size.config(tokenizer))


def training_rows(size: NanoSize) -> list[dict[str, Any]]:
    """Rows for one pass; a tenth more than the steps need, in place of those held out."""
    tasks = training_tasks(int(size.steps * size.batch_size * 1.1), HELD_OUT, size.seed)
    return [task.row() for task in tasks]


def save(model: Any, tokenizer: Any, directory: Path) -> None:
    """Weights rounded to bfloat16, and the tokenizer."""
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def train_size(size: NanoSize, tokenizer: Any, out: Path, work: Path) -> tuple[SftResult, int]:
    """Train one size; its released weights go to `out`, its last state to `work`.

    Returns the training's figures and the number of parameters.
    """
    model = start_model(size, tokenizer, work)

    def on_step(metrics: StepMetrics) -> None:
        step = metrics.step + 1
        if step % 100 == 0:
            print(f"nano-{size.name} step {step}: loss {metrics.loss:.3f}", flush=True)
        if step == size.release_step:
            save(model, tokenizer, out / size.name)

    result = train(model, tokenizer, training_rows(size), size.training(), on_step)
    save(model, tokenizer, work / size.name)
    return result, model.num_parameters()


def measure(directory: Path, name: str) -> dict[str, tuple[SolveRate, SolveRate]]:
    """Per kind: the held-out rates at temperature 1 and greedy."""
    engine = load(directory, f"tracemill/nano-{name}")
    rates = {}
    for kind in KINDS:
        tasks = held_out(kind, HELD_OUT)
        rates[kind.name] = (solve_rate(engine, tasks, 1.0), solve_rate(engine, tasks, 0.0))
        print(f"  {kind.name}: " + " / ".join(f"{r.solved:.3f}" for r in rates[kind.name]))
    return rates


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Train the nano models from scratch.")
    parser.add_argument("--size", nargs="+", choices=sorted(SIZES), default=list(SIZES))
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--work", type=Path, default=Path("build/nano"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    for name in arguments.size:
        size = SIZES[name]
        result, parameters = train_size(size, tokenizer, arguments.out, arguments.work)
        rates = measure(arguments.out / name, name)
        card = nano_card.render(size, len(tokenizer), parameters, result, rates)
        (arguments.out / name / "README.md").write_text(card)


if __name__ == "__main__":
    main()
