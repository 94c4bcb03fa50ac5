"""The attacks of the detection table, each made of one honest trace.

An attack gives a row as the cheat would upload it, and what a verifier's prefill gives for it.
`logprobs` None stands for those that the claimed tokens have under the claimed sampling.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from infra.inference.transformers_engine import TransformersEngine
from tests.bench.detection_provers import drawn
from tests.bench.detection_traces import rule_of
from toploc.build import prove
from toploc.field import P
from toploc.sampling import examine

PROOF = 258
JITTER = 0.008
"""Relative noise of about as many ULP as bfloat16 has."""

Attack = tuple[str, dict[str, Any], Tensor, Tensor]

COMPUTED = (
    "int8", "fp8", "int6", "int4", "last_layer_skipped", "middle_layer_skipped", "other_prompt",
)  # fmt: skip
NEAR = ("int8", "fp8", "int6")
"""Provers that say of themselves, too, that they compute in bfloat16: it has wider limits."""
SMALLER = {"int4": "small_model_int4", "middle_layer_skipped": "small_model_29_layers"}
"""Provers whose tokens, under an honest prefill of the whole model, stand for a smaller model's."""


def attacks(
    engine: TransformersEngine,
    trace: dict[str, Any],
    other: dict[str, Any],
    made: Mapping[str, dict[str, Any] | None],
    hidden: Tensor,
    logits: Tensor,
) -> Iterator[Attack]:
    """All attacks on a trace; `other` is another honest one, `made` what other provers made."""
    honest = trace | {"logprobs": None}
    rounded = trace["engine"].replace("|float32|", "|bfloat16|")
    for name in COMPUTED:
        if (row := made[name]) is not None:
            yield name, row, hidden, logits
            if name in NEAR:
                yield f"{name}_as_bfloat16", row | {"engine": rounded}, hidden, logits
    for name, attack in SMALLER.items():
        if (row := made[name]) is not None:
            yield attack, honest | {"output_ids": row["output_ids"]}, hidden, logits
    yield from _sampled(honest, rounded, logits, hidden)
    yield from _polynomials(honest, other, hidden, logits)
    yield from _altered(engine, honest, hidden, logits)
    yield _truncated(engine, honest, hidden, logits)


def _sampled(
    honest: dict[str, Any], rounded: str, logits: Tensor, hidden: Tensor
) -> Iterator[Attack]:
    """Tokens drawn otherwise than claimed, honest hidden states; and these with noise put on them
    and another engine stated, which is how a cheat in float32 gets the wider margins of
    bfloat16."""
    generator = torch.Generator().manual_seed(honest["seed"] % 2**32)
    noise = torch.randn(hidden.shape, generator=generator)
    noisy = prove((hidden.float() * (1 + JITTER * noise)).to(torch.bfloat16))
    temperature = 1.0 if '"temperature": 1.0' in honest["sampling"] else 0.7
    for name, changed in (
        ("wrong_seed", {"seed": honest["seed"] ^ 1}),
        ("temperature_plus_0.1", {"temperature": temperature + 0.1}),
        ("temperature_minus_0.1", {"temperature": temperature - 0.1}),
        ("top_p_0.90", {"top_p": 0.90}),
        ("greedy", {"temperature": 0.0}),
    ):
        tokens = drawn(honest, logits, **changed)["output_ids"]
        yield name, honest | {"output_ids": tokens}, hidden, logits
        if name != "wrong_seed":
            disguised = {"output_ids": tokens, "proofs": noisy, "engine": rounded}
            yield f"{name}_as_bfloat16", honest | disguised, hidden, logits


def _polynomials(
    honest: dict[str, Any], other: dict[str, Any], hidden: Tensor, logits: Tensor
) -> Iterator[Attack]:
    """Honest tokens under proofs that cost nothing, or that are another trace's or another place's.

    The constant is the commonest large value. The modal band is a dense polynomial through typical
    values of the largest channels, which somebody knows who has seen the model's states once.
    """
    chunks = [honest["proofs"][at : at + PROOF] for at in range(0, len(honest["proofs"]), PROOF)]
    typical = hidden.float().mean(0).to(torch.bfloat16)
    value = int(hidden.abs().flatten().topk(128).values[64].view(torch.int16))
    constant = P.to_bytes(2, "big") + value.to_bytes(2, "big") + bytes(PROOF - 4)
    copied = (other["proofs"] * len(chunks))[: PROOF * len(chunks)]
    for name, proofs in (
        ("constant_polynomial", constant * len(chunks)),
        ("modal_band_polynomial", prove(typical.repeat(len(hidden), 1))),
        ("copied_proof", copied),
        ("permuted_chunks", b"".join([*chunks[1:], chunks[0]])),
        ("replayed_chunk", chunks[0] * len(chunks)),
        ("sign_flipped", prove(-hidden)),
    ):
        yield name, honest | {"proofs": proofs}, hidden, logits


def _altered(
    engine: TransformersEngine, honest: dict[str, Any], hidden: Tensor, logits: Tensor
) -> Iterator[Attack]:
    """One token is the likeliest other one: changed after the proof, or chosen while sampling."""
    tokens = list(honest["output_ids"])
    place = honest["seed"] % min(len(tokens), 256)
    best = logits[place].topk(2).indices.tolist()
    tokens[place] = best[0] if best[0] != tokens[place] else best[1]
    row = honest | {"output_ids": tokens, "place": place}
    yield "one_token_chosen", row, hidden, logits
    with torch.inference_mode():
        ((states, scores),) = engine.prefill([(honest["prompt_ids"], tokens)])
    yield "one_token_altered", row, states, scores


def _truncated(
    engine: TransformersEngine, honest: dict[str, Any], hidden: Tensor, logits: Tensor
) -> Attack:
    """Stopped half-way with an end token, honest proofs of what is left."""
    count = len(honest["output_ids"]) // 2
    tokens = [*honest["output_ids"][:count], min(engine.eos_ids)]
    row = honest | {"output_ids": tokens, "finish_reason": "stop"}
    row |= {"proofs": prove(hidden[: count + 1])}
    row |= {"logprobs": _claimed(row, logits[: count + 1])}
    return "truncated_early", row, hidden[: count + 1], logits[: count + 1]


def _claimed(row: dict[str, Any], logits: Tensor) -> list[float]:
    tokens = torch.tensor(row["output_ids"])
    found: list[float] = examine(
        logits, tokens, row["seed"], rule_of(row["sampling"])
    ).logprobs.tolist()
    return found
