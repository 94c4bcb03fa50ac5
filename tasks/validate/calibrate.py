"""Honest runs of a model in every way that an honest node may run it, and the profile of them.

The reference engine decodes traces at batch sizes 1, 8 and 32. Then engines of other dtypes and
attention functions read the same outputs (whole, in pieces, or token by token as decoding does),
which gives their hidden states and the tokens that they would have drawn under the same seeds. All
is judged by the reference engine's prefill, as a validator judges. Beginnings of traces are traces
too: they give the limits of the shorter ones.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import torch
from torch import Tensor

from data_contracts.ids import content_id, trace_seed
from infra.inference import load_engine
from infra.inference.loading import ATTENTIONS
from infra.inference.protocol import Piece, Request, SamplingParams
from infra.inference.transformers_engine import TransformersEngine
from infra.models import registry
from toploc.build import prove
from toploc.calibration import Honest, fit
from toploc.decision import TOKEN_BANDS, evidence
from toploc.profile import Profile
from toploc.sampling import Claims, SamplingRule, examine, sample
from toploc.verdict import examine_proofs

BATCHES = (32, 8, 32, 1, 8)
"""Sizes of the decoded batches, by turns."""

DECODED = 48
"""Tokens of a trace that are replayed one by one: decoding is slow, and its products the same."""

OPEN = (
    "Tell me everything you know about {}.", "Write an essay on {}.", "Invent a tale of {}.",
    "Why do people care about {}? Discuss at length.", "Make a plan for a museum of {}.",
)  # fmt: skip
CLOSED = (
    "Spell this word backward (example: sun -> nus): {}",
    "How many times does the letter e appear in the text: {}",
)
SUBJECTS = (
    "clouds", "pottery", "the sea", "horses", "honey", "windmills", "mirrors", "tea", "bridges",
    "moss", "trumpets", "candles", "wolves", "sand", "apples", "ferries", "wool", "comets",
    "stairs", "thunderstorms", "gardens", "keys", "spices", "foxes", "rain", "bells", "islands",
)  # fmt: skip

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """How much is run."""

    traces: int = 96
    """Traces that the reference engine decodes, and its dtype replays."""
    other_traces: int = 40
    """Traces that each other dtype replays; it may be slow."""
    max_tokens: int = 256
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    rate: float = 1e-4


@dataclass(frozen=True)
class Way:
    """A way to compute."""

    mode: str
    step: int | None
    batch: int


WHOLE_TRACES = (
    Way("prefill, batch 8", None, 8),
    Way("prefill, batch 1", None, 1),
    Way("prefill in pieces of 32, batch 32", 32, 32),
)
WAYS = (
    *WHOLE_TRACES,
    # Twice as often as decoding: only they reach the limits of long traces.
    *WHOLE_TRACES,
    Way("decode, batch 1", 1, 1),
    Way("decode, batch 8", 1, 8),
    Way("decode, batch 32", 1, 32),
)


@dataclass(frozen=True)
class Text:
    """One trace that the reference engine decoded."""

    name: str
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    seed: int
    rule: SamplingRule


@dataclass(frozen=True)
class Run:
    """What one prover made of a text, or of its beginning."""

    text: Text
    environment: str
    mode: str
    hidden: Tensor
    """[rows, hidden size] bfloat16, one row per token."""
    tokens: Tensor
    logprobs: Tensor


def calibrate(model_id: str, plan: Plan, progress: Progress) -> Profile:
    """Run the model honestly in all ways and fit a profile."""
    engine = load_engine(model_id)
    runs: list[Run] = []
    for batch, group in _batches(engine, plan):
        progress(f"decode, batch {batch}: {len(group)} traces")
        runs += _decoded(engine, group, plan.max_tokens, f"decode, batch {batch}")
    texts = [run.text for run in runs]
    for dtype in plan.dtypes:
        own = f"|{dtype}|" in engine.environment
        some = texts[:: max(1, len(texts) // plan.other_traces)][: plan.other_traces]
        chosen = texts if own else some
        kernels = ATTENTIONS[1:] if own else ATTENTIONS
        for at, attention in enumerate(kernels):
            progress(f"{dtype}, {attention}: {len(chosen[at :: len(kernels)])} traces")
            runs += _replayed(model_id, dtype, attention, chosen[at :: len(kernels)])
    by_text: dict[str, list[Run]] = {}
    for run in runs:
        by_text.setdefault(run.text.name, []).append(run)
    honest: list[Honest] = []
    for number, text in enumerate(texts):
        if number % 16 == 0:
            progress(f"judged {number} of {len(texts)} traces")
        with torch.inference_mode():
            ((hidden, logits),) = engine.prefill([(text.prompt_ids, text.output_ids)])
            for run in by_text[text.name]:
                honest += _beginnings(run, hidden, logits)
    engine.close()
    return fit(model_id, registry.revision(model_id), honest, plan.rate)


def _batches(
    engine: TransformersEngine, plan: Plan
) -> Iterator[tuple[int, list[tuple[str, tuple[int, ...], SamplingRule]]]]:
    """Batch sizes, and the names, prompts and rules to decode at each."""
    defaults = registry.get(engine.model_id).sampling
    own = SamplingRule(defaults.temperature, defaults.top_p, defaults.top_k, defaults.min_p)
    messages, rules = cycle(_messages()), cycle([own, SamplingRule(1.0, 0.95)])
    number = 0
    for batch in cycle(BATCHES):
        if number >= plan.traces:
            return
        rule, group = next(rules), []
        for _ in range(min(batch, plan.traces - number)):
            ids, _ = engine.render([{"role": "user", "content": next(messages)}])
            group.append((content_id(["calibration", number]), tuple(ids), rule))
            number += 1
        yield batch, group


def _messages() -> list[str]:
    """Two thirds call for long answers, one third for short ones."""
    forms = [OPEN[0], CLOSED[0], OPEN[1], OPEN[2], CLOSED[1], OPEN[3], OPEN[4]]
    return [
        forms[(number + number // len(forms)) % len(forms)].format(subject)
        for number, subject in enumerate(SUBJECTS * len(forms))
    ]


def _decoded(
    engine: TransformersEngine,
    group: Sequence[tuple[str, tuple[int, ...], SamplingRule]],
    max_tokens: int,
    mode: str,
) -> list[Run]:
    rule = group[0][2]
    params = SamplingParams(rule.temperature, rule.top_p, rule.top_k, rule.min_p, max_tokens)
    pieces: dict[str, list[Tensor]] = {name: [] for name, _, _ in group}
    requests = [Request(name, prompt, trace_seed(name)) for name, prompt, _ in group]

    def keep(given: Sequence[Piece]) -> None:
        for name, _, rows in given:
            pieces[name].append(rows)

    done = engine.generate(requests, params, keep)
    return [
        Run(
            Text(r.trace_id, r.prompt_ids, tuple(c.output_ids), r.seed, rule),
            engine.environment,
            mode,
            torch.cat(pieces[r.trace_id]),
            torch.tensor(c.output_ids),
            torch.tensor(c.logprobs),
        )
        for r, c in zip(requests, done, strict=True)
    ]


def _replayed(model_id: str, dtype: str, attention: str, texts: Sequence[Text]) -> list[Run]:
    """Each text in one of the ways, by turns."""
    engine = load_engine(model_id, dtype=dtype, attention=attention)
    runs = []
    for at, way in enumerate(WAYS):
        mine = texts[at :: len(WAYS)]
        for first in range(0, len(mine), way.batch):
            group = mine[first : first + way.batch]
            kept = [t.output_ids[:DECODED] if way.step == 1 else t.output_ids for t in group]
            items = [(text.prompt_ids, output) for text, output in zip(group, kept, strict=True)]
            computed = engine.prefill(items, way.step)
            for text, (hidden, logits) in zip(group, computed, strict=True):
                places = torch.arange(len(logits))
                seeds = torch.full_like(places, text.seed)
                tokens, logprobs = sample(logits, seeds, places, text.rule)
                runs.append(Run(text, engine.environment, way.mode, hidden, tokens, logprobs))
    engine.close()
    return runs


def _beginnings(run: Run, hidden: Tensor, logits: Tensor) -> Iterator[Honest]:
    """The run, and its beginnings at the edges of the bands, against the reference's prefill."""
    count = len(run.tokens)
    claims = examine(logits[:count], run.tokens, run.text.seed, run.text.rule)
    for end in sorted({*(edge for edge in TOKEN_BANDS if edge < count), count}):
        found = examine_proofs(hidden[:end], prove(run.hidden[:end]))
        part = Claims(claims.margins[:end], claims.distances[:end], claims.logprobs[:end])
        yield Honest(
            run.environment,
            run.mode,
            run.text.name,
            evidence(found, part, run.logprobs[:end]),
        )
