"""What other provers make of the same traces: other kernels, other weights, another prompt.

Each reads the honest outputs by a forced pass: its hidden states give its proofs, and its logits
the token that it would have drawn at each place under the trace's seed. So one pass serves as an
honest prover of another kind, or as a cheat, with the same contexts for all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from infra.inference import load_engine
from infra.inference.transformers_engine import TransformersEngine
from tests.bench.detection_traces import CACHE, read_rows, rule_of, write_rows
from toploc.build import prove
from toploc.sampling import sample

GROUP = 64
"""Alignment of int6 and int4 groups."""


@dataclass(frozen=True)
class Prover:
    """A way to compute; `honest` ones must never be refused."""

    name: str
    honest: bool = False
    dtype: str = "float32"
    attention: str = "sdpa_grouped"
    step: int | None = None
    batch: int = 8
    change: Callable[[Any], None] | None = None
    """Applied to the model's body."""
    prompt: Callable[[TransformersEngine, list[int]], list[int]] | None = None
    share: float = 1.0
    """Part of the traces that it takes; bfloat16 is slow on CPUs without support for it."""


def integers(bits: int, group: int | None) -> Callable[[Tensor], Tensor]:
    """Symmetric rounding with one scale per row, or per `group` columns."""
    top = 2 ** (bits - 1) - 1

    def rounded(weight: Tensor) -> Tensor:
        parts = weight.reshape(len(weight), -1, group or weight.shape[1])
        scale = parts.abs().amax(-1, keepdim=True) / top
        return ((parts / scale).round().clamp(-top - 1, top) * scale).reshape(weight.shape)

    return rounded


def float8(weight: Tensor) -> Tensor:
    """e4m3 with one scale per row."""
    scale = weight.abs().amax(1, keepdim=True) / 448.0
    return (weight / scale).to(torch.float8_e4m3fn).to(weight.dtype) * scale


def quantised(rounded: Callable[[Tensor], Tensor]) -> Callable[[Any], None]:
    """All linear layers of the body; embeddings and head stay, as quantisers leave them."""

    def change(body: Any) -> None:
        for module in body.modules():
            if isinstance(module, nn.Linear):
                module.weight.copy_(rounded(module.weight))

    return change


def without_layer(place: Callable[[int], int]) -> Callable[[Any], None]:
    """One decoder layer left out."""

    def change(body: Any) -> None:
        kept = list(body.layers)
        del kept[place(len(kept))]
        body.layers = nn.ModuleList(kept)

    return change


def without_system_prompt(engine: TransformersEngine, prompt_ids: list[int]) -> list[int]:
    """The user's message alone: the text after the first end-of-message token and line break."""
    end = prompt_ids.index(next(i for i in prompt_ids if i in engine.eos_ids))
    return prompt_ids[end + 2 :]


PROVERS = (
    Prover("eager", honest=True, attention="eager"),
    Prover("chunked", honest=True, attention="sdpa", step=48, batch=1),
    Prover("bfloat16", honest=True, dtype="bfloat16", share=0.25),
    Prover("int8", change=quantised(integers(8, None))),
    Prover("fp8", change=quantised(float8)),
    Prover("int6", change=quantised(integers(6, GROUP))),
    Prover("int4", change=quantised(integers(4, GROUP))),
    Prover("last_layer_skipped", change=without_layer(lambda count: count - 1)),
    Prover("middle_layer_skipped", change=without_layer(lambda count: count // 2)),
    Prover("other_prompt", prompt=without_system_prompt),
)


def replay(
    engine: TransformersEngine, prover: Prover, traces: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The traces with this prover's tokens, log-probabilities and proofs."""
    found = []
    for first in range(0, len(traces), prover.batch):
        group = traces[first : first + prover.batch]
        prompts = [trace["prompt_ids"] for trace in group]
        if prover.prompt is not None:
            prompts = [prover.prompt(engine, prompt) for prompt in prompts]
        items = [(p, t["output_ids"]) for p, t in zip(prompts, group, strict=True)]
        for trace, (hidden, logits) in zip(group, engine.prefill(items, prover.step), strict=True):
            own = {"proofs": prove(hidden), "engine": engine.environment}
            found.append(trace | own | drawn(trace, logits))
    return found


def drawn(trace: dict[str, Any], logits: Tensor, **changed: Any) -> dict[str, Any]:
    """Tokens and log-probabilities from these logits; `changed` replaces seed or sampling."""
    rule = rule_of(trace["sampling"], **{k: v for k, v in changed.items() if k != "seed"})
    seeds = torch.full((len(logits),), changed.get("seed", trace["seed"]))
    tokens, logprobs = sample(logits, seeds, torch.arange(len(logits)), rule)
    return {"output_ids": tokens.tolist(), "logprobs": logprobs.tolist()}


def replays(
    prover: Prover, model: str, traces: Sequence[dict[str, Any]], kind: str = "", batch: int = 8
) -> list[dict[str, Any]]:
    """As `replay`, from the cache, by kind of traces, where it has been made before."""
    engine: TransformersEngine | None = None
    found: list[dict[str, Any]] = []
    for first in range(0, len(traces), batch):
        part = traces[first : first + batch]
        part = part[: max(1, round(len(part) * prover.share))]
        name = f"{prover.name}-{part[0]['model_revision'][:8]}-{first}-{len(part)}"
        path = CACHE / f"{kind}{name}.jsonl"
        if not path.is_file():
            if engine is None:
                engine = load_engine(model, dtype=prover.dtype, attention=prover.attention)
                if prover.change is not None:
                    with torch.no_grad():
                        prover.change(engine._loaded().body)
            write_rows(path, replay(engine, prover, part))
        found += read_rows(path)
    return found
