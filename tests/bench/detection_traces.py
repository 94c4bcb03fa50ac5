"""Traces for the detection table: honest decodes of prompts that call for long answers.

Made once and kept below `.bench/` (git-ignored), batch by batch, so that an interrupted benchmark
goes on where it was. Prompts, ids and seeds differ from those of calibration.
"""

import base64
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_contracts.ids import content_id, trace_seed
from infra.inference.protocol import Engine, Request, SamplingParams
from tasks.generate.work import ProofSink
from toploc.sampling import SamplingRule

SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
CACHE = Path(".bench") / "toploc"
BATCH = 64

OPENINGS = (
    "Write a long story about {}.",
    "Explain in detail how one would describe {} to a child.",
    "Compare {} with its opposite and list ten differences.",
    "Write a diary of a week that is all about {}.",
    "Give step-by-step advice for somebody who has to deal with {}.",
    "Describe the history and the future of {} in several paragraphs.",
    "Write a dialogue of two friends who disagree about {}.",
    "Draft a lecture on {} with an introduction, three parts and a summary.",
)
TOPICS = (
    "a lighthouse keeper", "bread", "the tides", "a lost umbrella", "bicycles", "the number seven",
    "winter in the mountains", "an old library", "bees", "railway timetables", "a broken clock",
    "the colour green", "volcanoes", "a chess tournament", "rivers", "learning to swim", "ink",
    "a market square", "the night sky", "glass", "owls", "a long bridge", "salt", "kites",
    "the first snow", "a village band", "maps", "a desert island", "coffee", "a secret garden",
    "thunder", "paper boats",
)  # fmt: skip


def trace_id(*what: object) -> str:
    return content_id(["detection", *map(str, what)])


def prompts() -> list[str]:
    """256 user messages; neighbours differ in form and in topic."""
    return [
        OPENINGS[(n + n // len(TOPICS)) % len(OPENINGS)].format(TOPICS[n % len(TOPICS)])
        for n in range(len(OPENINGS) * len(TOPICS))
    ]


def sampling_of(temperature: float, max_tokens: int = 256) -> dict[str, Any]:
    return {
        "temperature": temperature, "top_p": 0.95, "top_k": 0, "min_p": 0.0,
        "max_tokens": max_tokens, "stop": [],
    }  # fmt: skip


def rule_of(sampling: str, **changed: float) -> SamplingRule:
    """The rule of a trace's sampling column, with some of it changed."""
    given = json.loads(sampling)
    kept = {name: given[name] for name in ("temperature", "top_p", "top_k", "min_p")}
    return SamplingRule(**kept | changed)


def decode(
    engine: Engine, batch: list[tuple[str, list[int]]], sampling: dict[str, Any]
) -> list[dict[str, Any]]:
    """Honest traces of (trace id, prompt ids), as rows of the traces table."""
    sink = ProofSink()
    requests = [Request(name, tuple(ids), trace_seed(name)) for name, ids in batch]
    params = SamplingParams(**sampling | {"stop": tuple(sampling["stop"])})
    return [
        {
            "trace_id": request.trace_id,
            "model_revision": engine.revision,
            "engine": engine.environment,
            "seed": request.seed,
            "sampling": json.dumps(sampling),
            "prompt_ids": list(request.prompt_ids),
            "output_ids": done.output_ids,
            "logprobs": done.logprobs,
            "status": done.status,
            "finish_reason": done.finish_reason,
            "proofs": sink.of(request.trace_id),
        }
        for request, done in zip(requests, engine.generate(requests, params, sink), strict=True)
    ]


def smollm2_traces(engine: Engine, count: int) -> list[dict[str, Any]]:
    """The first `count` honest traces of SmolLM2, at temperatures 1.0 and 0.7 by turns."""
    messages = prompts()
    found: list[dict[str, Any]] = []
    for first in range(0, count, 2 * BATCH):
        warm, cool = (
            _smollm2_batch(engine, messages, first + offset, sampling_of(temperature))
            for offset, temperature in ((0, 1.0), (BATCH, 0.7))
        )
        found += [trace for pair in zip(warm, cool, strict=True) for trace in pair]
    return found[:count]


def short_traces(engine: Engine, count: int) -> list[dict[str, Any]]:
    """Honest traces of up to 96 tokens, of SmolLM2 up to 64; batches of 1, 8 and 32."""
    small = engine.model_id != SMOLLM2
    kind, longest = ("nano", 96) if small else ("short", 64)
    found: list[dict[str, Any]] = []
    for size in itertools.cycle([32, 8, 32, 1, 32, 8]):
        if len(found) >= count:
            return found[:count]
        numbers = range(len(found), len(found) + size)
        questions = [_nano_question(n) if small else prompts()[n % 256] for n in numbers]
        names = [trace_id(engine.model_id, n) for n in numbers]
        part = f"{kind}-{engine.revision[:8]}-{len(found)}-{size}"
        found += _made_once(part, engine, names, questions, sampling_of(1.0, longest))


def _nano_question(n: int) -> str:
    words = ("harbour", "pencil", "orange", "castle", "bottle", "silver", "tunnel", "garlic")
    return (
        prompts()[n % 256][:50].lower(),
        f"Spell this word backward (example: sun -> nus): {words[n % 8]}{words[n % 7]}",
        f"What is the answer to this arithmetic problem: {n % 97} + {n % 13} =",
    )[n % 3]


def _smollm2_batch(
    engine: Engine, messages: list[str], first: int, sampling: dict[str, Any]
) -> list[dict[str, Any]]:
    numbers = range(first, first + BATCH)
    names = [trace_id("smollm2", n) for n in numbers]
    questions = [messages[n % len(messages)] for n in numbers]
    part = f"smollm2-{engine.revision[:8]}-{first}"
    return _made_once(part, engine, names, questions, sampling)


def _made_once(
    part: str, engine: Engine, names: list[str], questions: list[str], sampling: dict[str, Any]
) -> list[dict[str, Any]]:
    """Answers to users' questions, decoded as one batch unless they are in the cache."""
    path = CACHE / f"{part}.jsonl"
    if not path.is_file():
        prompted = [engine.render([{"role": "user", "content": one}])[0] for one in questions]
        write_rows(path, decode(engine, list(zip(names, prompted, strict=True)), sampling))
    return read_rows(path)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Rows as JSON lines, bytes in base64; the file appears when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("w") as file:
        for row in rows:
            proofs = base64.b64encode(row["proofs"]).decode()
            file.write(json.dumps(row | {"proofs": proofs}) + "\n")
    part.replace(path)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """What `write_rows` wrote."""
    return list(_rows(path))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        row = json.loads(line)
        yield row | {"proofs": base64.b64decode(row["proofs"])}
