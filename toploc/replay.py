"""Judging a group: who of a pipeline's stages did not do what it signed.

One prefill through all stages, and records that agree, accept an honest group. Otherwise the stages
are looked at in order, each replayed from the input that it committed to, until the first that is
at fault. Of an inner stage, with R what the replay gives, X what the stage sent, P its proofs:

| R is X | P is of R | P is made of X | |
|---|---|---|---|
| yes | yes | | nothing wrong |
| yes | no | no | `lied_in_proof` |
| no | yes | no | `sent_other_than_committed` |
| otherwise | | | `computed_wrongly` |

"Is" means within the limits of the judges that the caller gives, a calibration profile's where the
model has one. X is R if a proof of all its rows passes for one of R, and no row is far away. The
last stage sends tokens, which are X: they "are R" if they can have been sampled from it.

Invariants: a stage is named only for what it signed itself, or for an input that it does not hand
out; an honest `StageSigner` within the tolerances is never named, whatever the others do, alone or
together; what a judge refuses softly is held against no stage. A stage whose successor withholds
what came, or claims that something else came, is judged by its proofs alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from toploc.build import prove
from toploc.errors import MalformedRecord
from toploc.groups import GroupTask, StageRecord, link_holds, present, rows_digest
from toploc.transcript import Transcript
from toploc.verdict import Limits, ProofVerdict, join, judge_proofs, refuse

CHALLENGE_SECONDS = 600
"""A stage that is challenged hands out its input within this time; not to do so is its fault."""

_OWN = Limits(exp_mismatches=4, mant_err_mean=0.5, mant_err_median=0.0)
"""A proof against the very bytes that it was made of: only ties at the k-th place differ."""

_ROW_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)

_FINE = ProofVerdict(True, ())

Kind = Literal[
    "computed_wrongly",
    "lied_in_proof",
    "sent_other_than_committed",
    "lied_about_input",
    "withheld_input",
]


class StagedModel(Protocol):
    """The verifier's own model, cut into the group's stages."""

    vocab_size: int

    def run(self, stage: int, rows: Tensor) -> Tensor:
        """Output [positions, hidden] of a stage.

        Stage 0 takes token ids [positions], the others hidden states [positions, hidden]. All but
        the last give un-normed states, the last one normed states.
        """
        ...


HandedOut = Callable[[int], Tensor | None]
"""The input that a stage kept, on challenge; None when it did not come in time."""

ProofJudge = Callable[[int, Tensor, bytes], ProofVerdict]
"""Judges proofs of a stage against hidden states [rows, hidden] in bf16."""

TokenJudge = Callable[[Tensor, bytes], ProofVerdict]
"""Judges whether the trace's tokens can have been sampled from normed states [rows, hidden].

The proofs are the last stage's: how near they are to the states says how exactly it computed.
"""


def by_fixed_limits(stage: int, hidden: Tensor, proofs: bytes) -> ProofVerdict:
    """The ProofJudge of models without a calibration profile."""
    return judge_proofs(hidden, proofs)


@dataclass(frozen=True, slots=True)
class Fault:
    """One stage's fault in one trace."""

    stage: int
    kind: Kind
    evidence: str
    rate: float = 0.0
    """Where limits alone speak against it: how often they do so against an honest stage. 0 where
    this one trace proves the fault; else `toploc.record` says when many do."""


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """What is said about one trace of a group."""

    outcome: Literal["accepted", "rejected", "incomplete"]
    fault: Fault | None = None
    """The first faulty stage. `rejected` without one: the whole is out of limits and no stage
    alone is, so that nobody is punished."""
    missing: tuple[int, ...] = ()
    """Stages without a record of theirs, which makes a group `incomplete`."""
    reasons: tuple[str, ...] = ()
    replayed: int = 0
    """Stages that had to be replayed."""

    @property
    def failing_indices(self) -> list[int]:
        """The stages at fault in this trace."""
        return [] if self.fault is None else [self.fault.stage]


@torch.no_grad()
def judge_group(
    task: GroupTask,
    trace: Transcript,
    signature: bytes | None,
    records: Mapping[int, StageRecord],
    model: StagedModel,
    handed_out: HandedOut,
    judge_tokens: TokenJudge,
    judge_proof: ProofJudge = by_fixed_limits,
    row_error: float = 0.05,
) -> GroupVerdict:
    """Accept a trace of a group, or name the first faulty stage.

    Raises UnprovableActivations where the verifier's own model gives states that are not finite.

    Args:
        task: what the trusted side asked for, and of whom; at least two members.
        trace: the last stage's claim.
        signature: the last stage's signature on it.
        records: the stages' records, by stage, as far as they came.
        model: the verifier's model.
        handed_out: asks a stage for the input that it kept; only called after a failure.
        judge_tokens: the sampling check of the trace's tokens.
        judge_proof: for the proofs of every stage.
        row_error: largest distance (2-norm) of a row sent from the row replayed, relative to it,
            whatever the judge of proofs allows; proofs show the largest values alone.
    """
    found, missing = present(records, task)
    last = len(task.members) - 1
    if last not in missing and not _answers(task, trace, signature, found[last]):
        missing = (*missing, last)
    if missing:
        return GroupVerdict("incomplete", missing=missing)
    tokens = torch.tensor(list(trace.output_ids), dtype=torch.int64)
    if not len(tokens) or not _in_vocabulary(tokens, model):
        text = "there are no tokens, or some outside of the vocabulary"
        return GroupVerdict("rejected", Fault(last, "computed_wrongly", text))
    court = _Court(task, found, tokens, model, handed_out, judge_tokens, judge_proof, row_error)
    accounts = [court.account(stage) for stage in range(last + 1)]
    whole: list[str] = []
    if not any(accounts):
        whole, inner = court.prefill()
        if not whole and not inner:
            return GroupVerdict("accepted")
    for stage in range(last + 1):
        fault = accounts[stage] or court.replay(stage)
        if fault:
            return GroupVerdict("rejected", fault, replayed=stage + 1)
    if whole:
        return GroupVerdict("rejected", reasons=tuple(whole), replayed=last + 1)
    return GroupVerdict("accepted", replayed=last + 1)


def _answers(
    task: GroupTask, trace: Transcript, signature: bytes | None, record: StageRecord
) -> bool:
    """Whether the last stage signed this transcript for this task, and with this record."""
    return (
        task.answered_by(trace)
        and list(trace.stage_proofs or ())[-1:] == [record.to_bytes()]
        and not trace.faults(trace.digest(), signature)
    )


class _Court:
    """The evidence in one trace, and the stages' outputs as far as they are computed."""

    def __init__(
        self,
        task: GroupTask,
        records: Mapping[int, StageRecord],
        tokens: Tensor,
        model: StagedModel,
        handed_out: HandedOut,
        judge_tokens: TokenJudge,
        judge_proof: ProofJudge,
        row_error: float,
    ) -> None:
        self._task, self._records, self._tokens = task, records, tokens
        self._model, self._handed_out = model, handed_out
        self._judge_tokens, self._judge_proof = judge_tokens, judge_proof
        self._row_error = row_error
        self._digest = task.digest()
        self._size = len(task.members)
        self._inputs: dict[int, Tensor | None] = {}

    def account(self, stage: int) -> Fault | None:
        """What a stage's own signatures say against it; nothing is computed."""
        record = self._records[stage]
        before, after = (stage - 1) % self._size, (stage + 1) % self._size
        if not link_holds(
            "dispatch", self._task, self._digest, before, record.input_digest, record.dispatch
        ):
            return Fault(
                stage,
                "lied_about_input",
                f"its record claims an input that stage {before} did not sign",
            )
        if not link_holds(
            "receipt", self._task, self._digest, stage, record.output_digest, record.receipt
        ):
            return Fault(
                stage,
                "sent_other_than_committed",
                f"its record claims an output that stage {after} did not countersign",
            )
        if stage == self._size - 1 and record.output_digest != rows_digest(self._tokens):
            return Fault(
                stage,
                "sent_other_than_committed",
                "its transcript has other tokens than its record",
            )
        received = self._records[after]
        if received.input_digest != record.output_digest and link_holds(
            "dispatch", self._task, self._digest, stage, received.input_digest, received.dispatch
        ):
            return Fault(
                stage,
                "sent_other_than_committed",
                f"it signed another output for stage {after} than in its record",
            )
        return None

    def prefill(self) -> tuple[list[str], list[str]]:
        """Reasons against the whole, and against proofs of inner stages, from the tokens alone."""
        rows = self._text(self._tokens)
        inner: list[str] = []
        for stage in range(self._size):
            rows = self._model.run(stage, rows)
            proofs = self._records[stage].proofs
            reasons = self._judge_proof(stage, self._outputs(rows), proofs).reasons
            if stage < self._size - 1:
                inner += reasons
        return [*reasons, *self._judge_tokens(self._last_rows(rows), proofs).reasons], inner

    def replay(self, stage: int) -> Fault | None:
        """What computing a stage again from its committed input says against it."""
        came = self._input(stage)
        if came is None:
            return Fault(
                stage,
                "withheld_input",
                "challenged, it did not hand out the input whose digest it signed",
            )
        if stage == 0:
            if not _in_vocabulary(came, self._model):
                return Fault(
                    stage, "lied_about_input", "it countersigned tokens that nothing computes with"
                )
            came = self._text(came)
        again, proofs = self._model.run(stage, came), self._records[stage].proofs
        proof = self._judge_proof(stage, self._outputs(again), proofs)
        if stage == self._size - 1:
            tokens = self._judge_tokens(self._last_rows(again), proofs)
            return self._decide(stage, tokens, proof, False)
        # What the next stage hands out is this one's only if this one signed the same digest.
        agreed = self._records[stage + 1].input_digest == self._records[stage].output_digest
        sent = self._input(stage + 1) if agreed else None
        if sent is None:
            return self._decide(stage, _FINE, proof, False)
        if not _are_rows_like(again, sent):
            text = f"rows_differ: {list(sent.shape)} {sent.dtype}, or not finite in bfloat16"
            return self._decide(stage, refuse(text), proof, False)
        made_of_it = judge_proofs(self._outputs(sent), proofs, _OWN).accepted
        return self._decide(stage, self._judge_sent(stage, again, sent), proof, made_of_it)

    def _judge_sent(self, stage: int, again: Tensor, sent: Tensor) -> ProofVerdict:
        """Whether rows that a stage sent are those replayed."""
        near = self._judge_proof(stage, again.to(torch.bfloat16), prove(sent.to(torch.bfloat16)))
        apart = _apart(again, sent)
        if apart <= self._row_error or near.soft:
            return near
        return refuse(f"rows_differ: a row that it sent is {apart:.3g} from the row replayed")

    def _decide(
        self, stage: int, sent: ProofVerdict, proof: ProofVerdict, made_of_it: bool
    ) -> Fault | None:
        right, proven = sent.accepted or sent.soft, proof.accepted or proof.soft
        if right and proven:
            return None
        found = join(sent, proof)
        kind: Kind = "computed_wrongly"
        if right and not made_of_it:
            kind = "lied_in_proof"
        elif proven and not made_of_it:
            kind = "sent_other_than_committed"
        return Fault(stage, kind, "; ".join(found.reasons), found.rate)

    def _input(self, stage: int) -> Tensor | None:
        """What a stage computed from: its digest is in the stage's record. None if withheld."""
        if stage not in self._inputs:
            expected = self._records[stage].input_digest
            if stage == 0 and expected == rows_digest(self._tokens):
                rows: Tensor | None = self._tokens
            else:
                rows = self._handed_out(stage)
            self._inputs[stage] = rows if rows is not None and _is(rows, expected) else None
        return self._inputs[stage]

    def _text(self, tokens: Tensor) -> Tensor:
        """Token ids of the prompt and of the output but its last token, which is fed to nobody."""
        return torch.cat(
            [torch.tensor(list(self._task.prompt_ids), dtype=torch.int64), tokens[:-1]]
        )

    def _last_rows(self, rows: Tensor) -> Tensor:
        """The rows that gave the output tokens."""
        return rows[len(self._task.prompt_ids) - 1 :]

    def _outputs(self, rows: Tensor) -> Tensor:
        """The rows that proofs commit to."""
        return self._last_rows(rows).to(torch.bfloat16)


def _in_vocabulary(tokens: Tensor, model: StagedModel) -> bool:
    whole = tokens.dim() == 1 and tokens.dtype == torch.int64
    return whole and bool(((tokens >= 0) & (tokens < model.vocab_size)).all())


def _is(rows: Tensor, expected: bytes) -> bool:
    """Whether rows that were handed out have a digest."""
    try:
        return rows_digest(rows) == expected
    except MalformedRecord:
        return False


def _are_rows_like(ours: Tensor, theirs: Tensor) -> bool:
    """Whether rows that somebody sent can be compared with those replayed."""
    whole = theirs.shape == ours.shape and theirs.dtype in _ROW_DTYPES
    return whole and bool(theirs.to(torch.bfloat16).isfinite().all())


def _apart(ours: Tensor, theirs: Tensor) -> float:
    """Largest distance of a row, relative to our row; infinite where a number says nothing."""
    a, b = ours.double(), theirs.double()
    apart = (a - b).norm(dim=1) / a.norm(dim=1).clamp_min(1e-30)
    return float(torch.nan_to_num(apart, nan=float("inf")).max())
