"""The dataset card: YAML front matter that `datasets` reads, and a text for people.

Invariant: only content, no run id, time, node or version, so that equal content gives an equal
card.
"""

from collections import Counter
from typing import Any

import yaml  # type: ignore[import-untyped]

from tasks.annotate.config import PASS_MARK
from tasks.annotate.difficulty import passed
from tasks.publish.config import PublishConfig
from tasks.publish.features import hf_features
from tasks.publish.files import File
from tasks.publish.source import RunSource
from tasks.publish.splits import CONFIGS, Splits

SIZES = [
    (1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
]  # fmt: skip
ABOUT = {
    "full": "one row per accepted trace, of every model",
    "sft_verified": "the teacher's traces that passed: reward 1 for binary kinds, above {mark} "
    "else",
    "sft_unverified": "all of the teacher's accepted traces, also those that failed or have no "
    "score",
    "rl": "one row per task with a working verifier, with its difficulty for each annotator",
}


def render_card(
    config: PublishConfig,
    splits: Splits,
    files: list[File],
    source: RunSource,
    annotators: list[str],
    teacher: str,
) -> str:
    """README.md of the version."""
    front = yaml.safe_dump(_front_matter(config, splits, files), sort_keys=False, width=120)
    parts = [
        f"---\n{front}---\n",
        f"# {_plain(config.pretty_name)}\n",
        "Reasoning traces of language models on tasks whose answers a program can check. Each "
        "trace "
        "was recomputed against an activation proof before it was scored.\n",
        _configs_text(splits),
        _models_text(source, annotators, teacher),
        _results_text(source),
        _verification_text(config, source),
        _use_text(splits),
    ]
    return "\n".join(parts)


def _front_matter(config: PublishConfig, splits: Splits, files: list[File]) -> dict[str, Any]:
    rows = splits.tables["full"].num_rows
    size = next((label for limit, label in SIZES if rows < limit), "10M<n<100M")
    return {
        "license": config.license,
        "language": ["en"],
        "pretty_name": config.pretty_name,
        "size_categories": [size],
        "task_categories": ["text-generation"],
        "tags": ["reasoning", "synthetic", "verified", "toploc", "tracemill"],
        "configs": [
            {
                "config_name": name,
                **({"default": True} if name == "full" else {}),
                "data_files": [{"split": "train", "path": f"{name}/train-*"}],
            }
            for name in CONFIGS
        ],
        "dataset_info": [_info(name, splits, files) for name in CONFIGS],
    }


def _info(name: str, splits: Splits, files: list[File]) -> dict[str, Any]:
    table = splits.tables[name]
    return {
        "config_name": name,
        "features": hf_features(table.schema),
        "splits": [{"name": "train", "num_bytes": table.nbytes, "num_examples": table.num_rows}],
        "download_size": sum(len(file.data) for file in files if file.config == name),
        "dataset_size": table.nbytes,
    }


def _configs_text(splits: Splits) -> str:
    rows = []
    for name in CONFIGS:
        left = ", ".join(f"{reason} {n}" for reason, n in sorted(splits.left_out[name].items()))
        about = ABOUT[name].format(mark=PASS_MARK)
        rows.append([f"`{name}`", str(splits.tables[name].num_rows), about, left or "-"])
    return "## Configs\n\n" + _table(["config", "rows", "one row is", "left out"], rows)


def _models_text(source: RunSource, annotators: list[str], teacher: str) -> str:
    uses: dict[tuple[str, str, str], Counter[str]] = {}
    for trace in source.traces:
        use = uses.setdefault((trace.model, trace.model_revision, trace.sampling), Counter())
        use["teacher" if trace.teacher else "annotator"] += 1
    rows = [
        [f"`{_cell(model)}`", " and ".join(sorted(use)), str(use.total()),
         f"`{_cell(revision)}`", f"`{_cell(sampling)}`"]
        for (model, revision, sampling), use in sorted(uses.items())
    ]  # fmt: skip
    names = ", ".join(f"`{_cell(model)}`" for model in annotators)
    return (
        f"## Models\n\nTeacher: `{_cell(teacher)}`. Annotators, whose pass rates tell how hard a "
        f"task is: {names}.\n\n"
        + _table(["model", "role", "accepted traces", "revision", "sampling"], rows)
    )


def _results_text(source: RunSource) -> str:
    tally: dict[tuple[str, str], Counter[str]] = {}
    for trace in source.traces:
        task = source.tasks[trace.task_id]
        cell = tally.setdefault((task["task_type"], trace.model), Counter())
        if trace.reward is None:
            cell["unscored"] += 1
        elif passed(trace.reward, bool(task["binary"]), PASS_MARK):
            cell["right"] += 1
        else:
            cell["wrong"] += 1
    tasks = Counter(task["task_type"] for task in source.tasks.values())
    rows = [
        [_cell(task_type), f"`{_cell(model)}`", str(tasks[task_type]), str(cell.total()),
         str(cell["right"]), str(cell["wrong"]), str(cell["unscored"])]
        for (task_type, model), cell in sorted(tally.items())
    ]  # fmt: skip
    head = ["task type", "model", "tasks", "accepted traces", "right", "wrong", "unscored"]
    sources = Counter(task["source"] for task in source.tasks.values())
    listing = ", ".join(f"{_cell(name)} ({n})" for name, n in sorted(sources.items()))
    return f"## Tasks and answers\n\nSources of tasks: {listing}.\n\n" + _table(head, rows)


def _verification_text(config: PublishConfig, source: RunSource) -> str:
    kinds: dict[str, set[str]] = {}
    for trace in source.traces:
        task_type = source.tasks[trace.task_id]["task_type"]
        kinds.setdefault(task_type, set()).add(trace.verifier)
    scorers = _table(
        ["task type", "verifier"],
        [
            [_cell(task_type), ", ".join(f"`{_cell(name)}`" for name in sorted(names))]
            for task_type, names in sorted(kinds.items())
        ],
    )
    validators = ", ".join(f"`{_cell(name)}`" for name in sorted(source.validators))
    unaudited = (
        "Traces that were accepted without an audit of their own are included."
        if config.allow_unaudited
        else "Traces that were not audited one by one are not included."
    )
    held = sum(source.held_back.values())
    return (
        "## How it was verified\n\n"
        "1. *The model ran.* While it decodes, the engine commits to its last hidden states "
        "(TOPLOC: "
        "the 128 largest activations of every 32 tokens). A validator recomputes them from the "
        "tokens by "
        "prefill and rejects a trace whose proof is missing, malformed or does not fit. "
        f"Validator: {validators}. {unaudited}\n"
        "2. *The answer was checked.* A program scores the answer against `verification_info`. A "
        "fault "
        "of the answer scores 0. A fault of the task, the verifier or the machine gives no score "
        "(null), "
        "which counts neither as right nor as wrong.\n"
        "3. *Every row is accounted for.* Of the "
        f"{source.planned} planned traces {source.accepted} were accepted"
        + (f"; {held} of these wait for their reward and are not in this version" if held else "")
        + ". `manifest.json` lists each file with its SHA-256.\n\n"
        + scorers
    )


def _use_text(splits: Splits) -> str:
    empty = [f"`{name}`" for name in CONFIGS if splits.tables[name].num_rows == 0]
    note = (
        f"Without rows in this version: {', '.join(empty)}. The library opens a split without rows "
        "only with `streaming=True`.\n\n"
        if empty
        else ""
    )
    return (
        "## Use\n\n```python\nfrom datasets import load_dataset\n\n"
        'load_dataset(PATH, "sft_verified")  # or full, sft_unverified, rl\n```\n\n'
        f"{note}"
        "`verification_info` is JSON text. In `rl`, `avg_reward_M`, `pass_rate_M` and `n_M` are "
        "the mean "
        "reward, the pass rate and the number of scored samples of annotator M; they are null "
        "where too "
        "few samples have a score.\n\n"
        "The completions are output of small language models: often wrong, never reviewed by a "
        "person.\n"
    )


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    """Text from tasks or models inside a table cell or inline code."""
    return _plain(text).replace("|", "\\|").replace("`", "'")


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;")
