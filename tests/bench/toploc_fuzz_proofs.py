"""Hostile proofs and activations for the builder, the parsers and the verifiers of proofs.

Invariant: nothing is accepted but the polynomials that were honestly built for these activations (a
small shift of the constant coefficient shifts all values alike, as rounding may, and passes).
"""

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis import target
from torch import Tensor

from tests.bench.toploc_fuzz_edits import TOPK, Base, Draw, bases, hostile, others
from tests.bench.toploc_fuzz_signed import ENVIRONMENT, PROFILE, SIGNED, changed_text
from toploc import (
    ProofPoly,
    build_proofs,
    prove,
    verify_proofs,
    verify_proofs_base64,
    verify_proofs_bytes,
)
from toploc.C.csrc import ndd
from toploc.errors import ToplocError
from toploc.field import P
from toploc.inspection import inspect_proofs
from toploc.misplaced import Copies, permuted
from toploc.proof import find_injective_modulus
from toploc.verdict import Limits, examine_proofs, judge_examined

LIMITS = (Limits(), Limits(60, 40.0, 40.0))


def judged(given: tuple[Base, list[bytes]], environment: str) -> None:
    """Verdicts at fixed and at calibrated limits, and where refused proofs belong."""
    base, proofs = given
    joined = b"".join(proofs)
    found = examine_proofs(base.activations, joined)
    json.dumps(found.figures, allow_nan=False)
    verdicts = [judge_examined(found, limits) for limits in LIMITS]
    verdicts.append(PROFILE.judge_states(found, [environment]))
    for verdict in verdicts:
        assert verdict.accepted != bool(verdict.reasons)
        assert not verdict.soft or environment != ENVIRONMENT
        assert not verdict.accepted or base.built(joined), "accepted what was not honestly built"
    if found.comparison is not None:
        target(-float(found.figures["exp_mismatches_max"]), label="mismatches")
        target(-float(min(found.figures["mant_err_mean_max"], 256.0)), label="error")
        permuted(base.activations, joined)
    Copies([SIGNED]).of(replace(SIGNED, trace_id="1" * 32, proofs=joined))


def verified(
    given: tuple[Base, list[bytes]], topk: int, rows: int, skip_prefill: bool, form: int
) -> None:
    base, proofs = given
    rest = rows, topk, skip_prefill
    with suppress(ToplocError):
        if form == 0:
            results = verify_proofs_bytes(base.activations, proofs, *rest)
        elif form == 1:
            results = verify_proofs(list(base.activations), list(map(parsed, proofs)), *rest)
        else:
            texts = [base64.b64encode(proof).decode() for proof in proofs]
            results = verify_proofs_base64(base.activations, texts, *rest)
        assert len(results) == len(proofs) > 0
        for result in results:
            assert 0 <= result.exp_mismatches <= topk
            for figure in (result.mant_err_mean, result.mant_err_median):
                assert 0 <= figure <= 127 or (figure == 2.0**64 and result.exp_mismatches == topk)


def parsed(data: bytes) -> ProofPoly:
    """The proof, the same after a round trip through its forms."""
    proof = ProofPoly.from_bytes(data)
    assert proof.to_bytes() == data == ProofPoly.from_base64(proof.to_base64()).to_bytes()
    return proof


def parsed_bytes(data: bytes, topk: int) -> None:
    with suppress(ToplocError):
        parsed(data)
    with suppress(ToplocError):
        facts = inspect_proofs(data, topk)
        assert len(facts) * (2 + 2 * topk) == len(data)


def parsed_text(text: str) -> None:
    with suppress(ToplocError):
        proof = ProofPoly.from_base64(text)
        assert proof.to_base64() == text == base64.b64encode(proof.to_bytes()).decode()


def of_points(x: list[int], y: list[int], dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    """Polynomials through any integers pass through them, or are refused."""
    with suppress(ToplocError):
        proof = ProofPoly.from_points(x, y)
        assert [proof(a % proof.modulus) for a in x] == [b % P for b in y]
        assert proof.modulus == find_injective_modulus(x)
    with suppress(ToplocError):
        ProofPoly.from_points_tensor(torch.tensor(x).to(dtypes[0]), torch.tensor(y).to(dtypes[1]))
    with suppress(ToplocError):
        made = ndd.compute_newton_coefficients(x, y)
        assert ndd.evaluate_polynomials(made, x) == [b % P for b in y]
    with suppress(ToplocError):
        ProofPoly(y, *x[:1] or [P])(7)


@st.composite
def unprovable(draw: Draw) -> tuple[list[Tensor] | Tensor, int, int, bool]:
    """Activations in any state, rows per proof, topk and skip_prefill."""
    activations = others(draw, draw(bases))[: draw(st.integers(0, 40))].clone()
    kind = draw(st.integers(0, 6))
    if kind == 0 and activations.numel():
        place = draw(st.integers(0, activations.numel() - 1))
        activations.view(-1)[place] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    elif kind == 1:
        dtypes = [torch.float32, torch.float64, torch.int16, torch.float16, torch.bool]
        activations = activations.to(draw(st.sampled_from(dtypes)))
    elif kind == 2:
        activations = activations[:, : draw(st.integers(0, 200))]
    elif kind == 3:
        activations = activations.reshape(-1, 2, activations.shape[1] // 2)
    elif kind == 4:
        activations = activations.t()
    given: list[Tensor] | Tensor = activations
    if draw(st.booleans()):
        given = list(activations)
        if kind == 5 and len(given) > 1:
            given = [a[: draw(st.integers(1, 300))] for a in given]
    rows, topk = draw(st.sampled_from([32, 32, 5, 0])), draw(st.sampled_from([TOPK, 16, 0, P + 1]))
    return given, rows, topk, draw(st.booleans())


def built(case: tuple[list[Tensor] | Tensor, int, int, bool]) -> None:
    """What cannot be proven gives null proofs or an error, and never a figure."""
    given, rows, topk, skip_prefill = case
    made = build_proofs(given, rows, topk, skip_prefill)
    try:
        results = verify_proofs(given, made, rows, topk, skip_prefill)
    except ToplocError:
        assert not made or all(proof.modulus == 0 for proof in made)
    else:
        assert all(result.exp_mismatches == 0 for result in results)
    if isinstance(given, Tensor):
        with suppress(ToplocError):
            prove(given, topk=topk, decode_batching_size=rows)


_any_bytes = st.binary(max_size=600) | hostile().map(lambda given: b"".join(given[1]))
_numbers = st.lists(st.integers(0, 2**17) | st.integers(-(2**63), 2**63 - 1), max_size=12)
_types = st.sampled_from(
    [torch.int64, torch.int32, torch.int16, torch.uint8, torch.float32, torch.bfloat16]
)

TARGETS: dict[str, tuple[Callable[..., None], tuple[st.SearchStrategy[Any], ...]]] = {
    "judged": (judged, (hostile(), st.sampled_from([ENVIRONMENT, "unseen"]))),
    "verified": (
        verified,
        (
            hostile(),
            st.sampled_from([TOPK, TOPK, 1, 64, 0, -1, 10**6]),
            st.sampled_from([32, 32, 7, 0, -3]),
            st.sampled_from([True, True, True, False]),
            st.integers(0, 2),
        ),
    ),
    "proof_bytes": (parsed_bytes, (_any_bytes, st.sampled_from([TOPK, 1, 64]))),
    "proof_text": (
        parsed_text,
        (
            changed_text(_any_bytes.map(lambda data: base64.b64encode(data).decode()))
            | st.text("ABab01+/=-_ \n", max_size=40),
        ),
    ),
    "points": (of_points, (_numbers, _numbers, st.tuples(_types, _types))),
    "built": (built, (unprovable(),)),
}
