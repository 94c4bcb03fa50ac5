"""Groups in which some stages lie in whatever they sign, prove or hand out.

Invariants: nobody but a liar is named, and a group is accepted only if every record and the tokens
are the honest ones (a small shift of a proof's constant coefficient apart).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.bench.toploc_fuzz_edits import edited
from tests.bench.toploc_fuzz_signed import changed_bytes
from toploc import prove
from toploc.groups import GroupTask, StageRecord, StageSigner, rows_digest
from toploc.replay import judge_group
from toploc.sampling import SamplingRule, judge_sampling, margins, sample
from toploc.signing import SigningKey
from toploc.transcript import Transcript

Draw = Callable[[st.SearchStrategy[Any]], Any]

STAGES, HIDDEN, VOCABULARY, TOKENS = 3, 128, 50, 8
KEYS = [SigningKey(bytes([stage + 1]) * 32) for stage in range(STAGES)]
RULE = SamplingRule(1.0)


class Model:
    """Three stages of one matrix each; a row depends on all rows before it."""

    vocab_size = VOCABULARY

    def __init__(self) -> None:
        random = torch.Generator().manual_seed(1)
        self.table = torch.randn(VOCABULARY, HIDDEN, generator=random)
        self.head = torch.randn(HIDDEN, VOCABULARY, generator=random)
        self.layers = torch.randn(STAGES, HIDDEN, HIDDEN, generator=random) / HIDDEN**0.5

    def run(self, stage: int, rows: Tensor) -> Tensor:
        if stage == 0:
            rows = self.table[rows]
        mean = rows.cumsum(0) / torch.arange(1, len(rows) + 1)[:, None]
        rows = rows + torch.tanh(mean @ self.layers[stage])
        return rows if stage < STAGES - 1 else torch.nn.functional.layer_norm(rows, (HIDDEN,))

    def logits(self, states: Tensor) -> Tensor:
        return states @ self.head / 8


class Honest:
    """One honest trace: the task, what the stages computed and signed, and the model."""

    def __init__(self) -> None:
        self.model = Model()
        members = tuple(key.node_id for key in KEYS)
        self.task = GroupTask("0a", members, "0" * 32, "r", (3, 1, 4), "{}", 7)
        self.tokens: list[int] = []
        for position in range(TOKENS):
            *_, states = self._rows(self.tokens)
            logits = self.model.logits(states[-1:])
            token, _ = sample(logits, torch.tensor([7]), torch.tensor([position]), RULE)
            self.tokens.append(int(token))
        rows = self._rows(self.tokens[:-1])
        self.kept = [torch.tensor(self.tokens), *rows[1:-1]]
        self.proven = [made[len(self.task.prompt_ids) - 1 :].bfloat16() for made in rows[1:]]
        went = [rows_digest(self.kept[(stage + 1) % STAGES]) for stage in range(STAGES)]
        signers = [StageSigner(self.task, stage, KEYS[stage]) for stage in range(STAGES)]
        sent = [signer.dispatch(digest) for signer, digest in zip(signers, went, strict=True)]
        got = [signers[(s + 1) % STAGES].countersign(sent[s], went[s]) for s in range(STAGES)]
        self.records = {
            stage: signer.record(got[stage], prove(self.proven[stage]))
            for stage, signer in enumerate(signers)
        }

    def _rows(self, output: list[int]) -> list[Tensor]:
        """What goes into each stage, and what comes out of the last."""
        rows = [torch.tensor([*self.task.prompt_ids, *output])]
        for stage in range(STAGES):
            rows.append(self.model.run(stage, rows[-1]))
        return rows

    def transcript(self, tokens: list[int], record: StageRecord) -> Transcript:
        return Transcript(
            trace_id=self.task.trace_id,
            model_revision=self.task.model_revision,
            prompt_ids=self.task.prompt_ids,
            output_ids=tokens,
            sampling=self.task.sampling,
            seed=self.task.seed,
            status="ok",
            finish_reason="length",
            logprobs=[-1.0] * len(tokens),
            proofs=record.proofs,
            engine="engine",
            node_id=self.task.members[-1],
            group_id=self.task.group_id,
            stage_proofs=[record.to_bytes()],
        )


honest = cache(Honest)


@st.composite
def lies(draw: Draw) -> tuple[dict[int, StageRecord], dict[int, Tensor | None], list[int]]:
    """The records of the stages, what the liars among them hand out, and the tokens."""
    group = honest()
    records, handed, tokens = dict(group.records), {}, list(group.tokens)
    for stage in draw(st.sets(st.integers(0, STAGES - 1), min_size=1)):
        record = records[stage]
        stolen = st.sampled_from([*group.records.values()])
        digests = stolen.flatmap(lambda r: st.sampled_from([r.input_digest, r.output_digest]))
        signatures = stolen.flatmap(lambda r: st.sampled_from([r.dispatch, r.receipt]))
        fields = {
            "stage": st.integers(0, 2**32 - 1) | st.integers(0, STAGES),
            "task": changed_bytes(record.task),
            "input_digest": digests | changed_bytes(record.input_digest),
            "output_digest": digests | changed_bytes(record.output_digest),
            "dispatch": signatures | changed_bytes(record.dispatch),
            "receipt": signatures | changed_bytes(record.receipt),
        }
        record = replace(record, **draw(st.fixed_dictionaries({}, optional=fields)))
        record = replace(record, proofs=b"".join(edited(draw, [record.proofs], proven(stage))))
        signer = draw(st.sampled_from([KEYS[stage], KEYS[stage], KEYS[0], None]))
        records[stage] = record if signer is None else record.signed(signer)
        handed[stage] = draw(handed_out(group.kept[stage]))
        if stage == STAGES - 1:
            tokens = draw(st.just(tokens) | st.permutations(tokens) | token_lists)
    return records, handed, tokens


token_lists = st.lists(
    st.integers(-1, VOCABULARY) | st.integers(-(2**63), 2**63 - 1), max_size=TOKENS + 1
)


@st.composite
def handed_out(draw: Draw, kept: Tensor) -> Tensor | None:
    """What was kept, or anything else that a tensor can be."""
    kind = draw(st.integers(0, 5))
    if kind <= 1:
        return kept if kind else None
    if kind == 2:
        dtypes = [torch.float64, torch.bfloat16, torch.int32, torch.bool, torch.complex64]
        return kept.to(draw(st.sampled_from(dtypes)))
    if kind == 3:
        return kept.reshape(draw(st.sampled_from([(-1,), (1, -1), (-1, 2), (2, -1, 1)])))
    if kind == 4:
        return torch.tensor(draw(st.sampled_from([0, float("nan"), []])))
    return kept[: draw(st.integers(0, len(kept)))]


class Proven:
    """What edits of proofs ask of a base: activations like these, and their proofs."""

    def __init__(self, stage: int) -> None:
        self.activations = honest().proven[stage]
        self.values = self.activations.double().numpy()
        self.proofs = [honest().records[stage].proofs]
        self.common = int(self.activations.abs().max().view(torch.int16))


proven = cache(Proven)


def grouped(
    case: tuple[dict[int, StageRecord], dict[int, Tensor | None], list[int]], left_out: set[int]
) -> None:
    records, handed, tokens = case
    group = honest()
    trace = group.transcript(tokens, records[STAGES - 1])

    def judge_tokens(states: Tensor, proofs: bytes):
        claimed = torch.tensor(tokens)
        return judge_sampling(margins(group.model.logits(states), claimed, 7, RULE))

    verdict = judge_group(
        group.task,
        trace,
        trace.sign(KEYS[-1])[1],
        {stage: record for stage, record in records.items() if stage not in left_out},
        group.model,
        lambda stage: handed[stage] if stage in handed else group.kept[stage],
        judge_tokens,
    )
    if verdict.fault is not None:
        assert verdict.fault.stage in handed, f"an innocent stage is named: {verdict}"
    if verdict.outcome == "accepted":
        assert not left_out and tokens == group.tokens, "accepted other tokens or no record"
        for stage, record in records.items():
            mine = group.records[stage]
            shifted = mine.proofs[:2] + record.proofs[2:4] + mine.proofs[4:]
            assert record.proofs == shifted, f"accepted another proof of stage {stage}"
            same = replace(record, proofs=mine.proofs, signature=mine.signature)
            assert same == mine, "accepted another record"


TARGETS: dict[str, tuple[Callable[..., None], tuple[st.SearchStrategy[Any], ...]]] = {
    "groups": (
        grouped,
        (lies(), st.just(set()) | st.sets(st.integers(0, STAGES - 1), max_size=1)),
    ),
}
