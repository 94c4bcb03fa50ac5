"""A real pipeline of four nodes, one layer each, against every way to cheat in every position."""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from infra.inference.loading import load
from infra.inference.stages import ModelStages
from infra.models.registry import materialise
from toploc.build import prove
from toploc.errors import UnprovableActivations
from toploc.groups import GroupTask, StageRecord, StageSigner, link_digest, rows_digest
from toploc.replay import judge_group
from toploc.sampling import SamplingLimits, SamplingRule, judge_sampling, margins, sample
from toploc.signing import SigningKey
from toploc.transcript import Transcript
from toploc.verdict import Limits, ProofVerdict, judge_proofs

MODEL = "tracemill/nano-l"
STAGES = 4
TOKENS = 16
RULE = SamplingRule(1.0, 1.0, 0, 0.0)
KEYS = [SigningKey(bytes([stage + 1]) * 32) for stage in range(STAGES)]
MEMBERS = tuple(key.node_id for key in KEYS)
LIMITS = Limits(exp_mismatches=8, mant_err_mean=3.0, mant_err_median=2.0)
"""For float32 on both sides, where honest stages differ in nothing."""
DRAWN = SamplingLimits()


@pytest.fixture(scope="module")
def nano():
    torch.set_num_threads(1)
    return load(Path(materialise(MODEL)), MODEL, "float32", "sdpa")


@dataclass
class Cheat:
    """What one stage does otherwise than an honest one."""

    computes: callable = None
    """(stage's input, honest output) -> what it computes instead."""
    sends: callable = None
    """What it sends instead of what it computed."""
    proves: callable = None
    """(its honest proofs, another trace's) -> what it puts into its record."""
    commits: callable = None
    """(its record, the link's sender signer) -> the record that it signs instead."""
    hands_out: callable = None
    """What it gives when it is challenged for its input."""


HONEST = Cheat()


@dataclass
class Trace:
    """One trace of the pipeline: what was asked, said, signed and kept."""

    task: GroupTask
    output_ids: list[int] = field(default_factory=list)
    computed: list[list[Tensor]] = field(default_factory=lambda: [[] for _ in range(STAGES)])
    came: list[list[Tensor]] = field(default_factory=lambda: [[] for _ in range(STAGES)])


class Pipeline:
    """Four nodes that decode a batch of prompts of one length over caches of their own."""

    def __init__(self, model, cheats=None):
        self.stages = ModelStages(model, STAGES)
        self.model = model
        self.cheats = {stage: (cheats or {}).get(stage, HONEST) for stage in range(STAGES)}

    def decode(self, prompts: list[list[int]], first_seed=1) -> list[Trace]:
        traces = [
            Trace(GroupTask("0a", MEMBERS, f"{n:032x}", "rev", prompt, "{}", first_seed + n))
            for n, prompt in enumerate(prompts)
        ]
        caches = [DynamicCache() for _ in range(STAGES)]
        rows = torch.tensor(prompts)
        seeds = torch.tensor([trace.task.seed for trace in traces])
        for position in range(TOKENS):
            for stage in range(STAGES):
                rows = self._step(stage, rows, caches[stage], traces)
            logits = self.model.logits(rows[:, -1])
            drawn = sample(logits, seeds, torch.full_like(seeds, position), RULE)[0]
            if self.cheats[STAGES - 1].sends:
                drawn = self.cheats[STAGES - 1].sends(drawn)
            for trace, token in zip(traces, drawn.tolist(), strict=True):
                trace.output_ids.append(token)
            rows = drawn[:, None]
        return traces

    def _step(self, stage, rows, cache, traces):
        cheat = self.cheats[stage]
        made = self.stages.run_batch(stage, rows, cache).clone()
        if cheat.computes:
            made = cheat.computes(rows, made)
        sent = cheat.sends(made) if cheat.sends and stage < STAGES - 1 else made
        for number, trace in enumerate(traces):
            trace.computed[stage].append(made[number])
            if stage < STAGES - 1:
                trace.came[stage + 1].append(sent[number])
        return sent


@dataclass
class Case:
    """What the trusted side gets of one trace."""

    task: GroupTask
    transcript: Transcript
    signature: bytes
    records: dict[int, StageRecord]
    kept: dict[int, Tensor]


def close(trace: Trace, cheats: dict[int, Cheat], foreign: Trace) -> Case:
    """The end of a trace: proofs, signatures of all links, records, the last stage's transcript."""
    tokens = torch.tensor(trace.output_ids)
    kept = {0: tokens} | {s: torch.cat(trace.came[s]) for s in range(1, STAGES)}
    went = [rows_digest(kept[(stage + 1) % STAGES]) for stage in range(STAGES)]
    signers = [StageSigner(trace.task, stage, KEYS[stage]) for stage in range(STAGES)]
    sent = [signers[stage].dispatch(went[stage]) for stage in range(STAGES)]
    receipts = [signers[(s + 1) % STAGES].countersign(sent[s], went[s]) for s in range(STAGES)]
    records = {}
    for stage in range(STAGES):
        proofs = proofs_of(trace, stage)
        if cheats.get(stage, HONEST).proves:
            proofs = cheats[stage].proves(proofs, proofs_of(foreign, stage))
        records[stage] = signers[stage].record(receipts[stage], proofs)
    for stage, cheat in cheats.items():
        if cheat.commits:
            records[stage] = cheat.commits(records[stage])
        if cheat.hands_out:
            kept[stage] = cheat.hands_out(kept[stage])
    transcript = Transcript(
        trace_id=trace.task.trace_id,
        model_revision=trace.task.model_revision,
        prompt_ids=trace.task.prompt_ids,
        output_ids=trace.output_ids,
        sampling=trace.task.sampling,
        seed=trace.task.seed,
        status="ok",
        finish_reason="length",
        logprobs=[-1.0] * TOKENS,
        proofs=records[STAGES - 1].proofs,
        engine="transformers",
        node_id=MEMBERS[-1],
        group_id=trace.task.group_id,
        stage_proofs=[records[STAGES - 1].to_bytes()],
    )
    return Case(trace.task, transcript, transcript.sign(KEYS[-1])[1], records, kept)


def proofs_of(trace: Trace, stage: int) -> bytes:
    rows = torch.cat(trace.computed[stage])[len(trace.task.prompt_ids) - 1 :]
    return prove(rows.to(torch.bfloat16))


def prompts_of(count: int, length: int = 12) -> list[list[int]]:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(1, 250, (count, length), generator=generator).tolist()


@pytest.fixture(scope="module")
def run(nano):
    """Two traces are decoded, the first one is judged; the second lends its proofs."""
    honest = Pipeline(nano).decode(prompts_of(2))

    def decode(cheats: dict[int, Cheat]) -> Case:
        traces = honest
        if any(cheat.computes or cheat.sends for cheat in cheats.values()):
            traces = Pipeline(nano, cheats).decode(prompts_of(2))
        return close(traces[0], cheats, traces[1])

    return decode


def judge(model, case: Case, asked=None, limits=LIMITS, row_error=0.05, drawn=DRAWN, **changed):
    case = replace(case, **changed)

    def handed_out(stage):
        if asked is not None:
            asked.append(stage)
        return case.kept.get(stage)

    def judge_tokens(states, proofs):
        seed = case.transcript.seed
        tokens = torch.tensor(case.transcript.output_ids)
        return judge_sampling(margins(model.logits(states), tokens, seed, RULE), drawn)

    return judge_group(
        case.task,
        case.transcript,
        case.signature,
        case.records,
        ModelStages(model, STAGES),
        handed_out,
        judge_tokens,
        lambda stage, hidden, proofs: judge_proofs(hidden, proofs, limits),
        row_error,
    )


def noise(share, rows):
    generator = torch.Generator().manual_seed(5)
    way = torch.nn.functional.normalize(torch.randn(rows.shape, generator=generator), dim=-1)
    return rows + (share * rows.norm(dim=-1, keepdim=True) * way).to(rows.dtype)


def skipped(came, made):
    return made.new_zeros(made.shape) if came.dim() < made.dim() else came.clone()


def noisy(came, made):
    return noise(0.3, made)


def coarse(came, made):
    """As eight bits per value would leave it."""
    step = made.abs().amax(dim=-1, keepdim=True) / 15
    return (made / step).round() * step


def foreign(mine, others):
    return others


def constant(mine, others):
    return b"\xff\xd9\x40\x80" + bytes(254)


def other_tokens(drawn):
    return drawn % 200 + 1


def another_output(stage, record):
    return replace(record, output_digest=bytes(32)).signed(KEYS[stage])


def another_input(stage, record):
    """A false input, to put the blame on the stage before."""
    return replace(record, input_digest=bytes(32)).signed(KEYS[stage])


def another_dispatch(stage, record):
    return replace(record, dispatch=record.receipt).signed(KEYS[stage])


COMPUTES = {"skipped": skipped, "noisy": noisy, "coarse": coarse}
PROVES = {"proofs of another text": foreign, "constant proofs": constant}


def every_single_fault():
    """(name, stage, cheat, kind) of each kind in each position."""
    for stage in range(STAGES):
        for name, computes in COMPUTES.items():
            yield name, stage, Cheat(computes=computes), "computed_wrongly"
        for name, proves in PROVES.items():
            yield name, stage, Cheat(proves=proves), "lied_in_proof"
        sends = other_tokens if stage == STAGES - 1 else partial(noise, 0.3)
        yield "sends other", stage, Cheat(sends=sends), "sent_other_than_committed"
        for name, commits, kind in (
            ("commits to another output", another_output, "sent_other_than_committed"),
            ("commits to another input", another_input, "lied_about_input"),
            ("claims an unsigned input", another_dispatch, "lied_about_input"),
        ):
            yield name, stage, Cheat(commits=partial(commits, stage)), kind


FAULTS = list(every_single_fault())


@pytest.mark.parametrize(
    ("stage", "cheat", "kind"),
    [fault[1:] for fault in FAULTS],
    ids=[f"{name} at {stage}" for name, stage, _, _ in FAULTS],
)
def test_one_corrupt_stage_is_named_with_its_kind(nano, run, stage, cheat, kind):
    case = run({stage: cheat})
    verdict = judge(nano, case)
    assert verdict.outcome == "rejected"
    assert (verdict.fault.stage, verdict.fault.kind) == (stage, kind), verdict.fault.evidence
    assert verdict.failing_indices == [stage]


@pytest.mark.slow
@pytest.mark.parametrize("stage", [None, *range(STAGES)])
def test_stages_of_bfloat16_are_honest_too_and_the_corrupt_one_among_them_is_named(nano, stage):
    half = load(Path(materialise(MODEL)), MODEL, "bfloat16", "eager")
    cheats = {} if stage is None else {stage: Cheat(computes=noisy)}
    loose = SamplingLimits(mean_margin=0.02, over_share=0.1)
    traces = Pipeline(half, cheats).decode(prompts_of(6))
    for trace in traces:
        verdict = judge(nano, close(trace, cheats, trace), limits=Limits(), drawn=loose)
        if stage is None:
            assert verdict.outcome == "accepted", verdict
        else:
            assert verdict.failing_indices == [stage], verdict


SECOND = {
    "computes": Cheat(computes=noisy),
    "proves": Cheat(proves=foreign),
    "withholds": Cheat(computes=noisy, hands_out=lambda rows: None),
}


@pytest.mark.parametrize("name", SECOND)
@pytest.mark.parametrize("pair", [(0, 1), (0, 3), (1, 2), (2, 3)])
def test_of_two_corrupt_stages_the_first_is_named(nano, run, pair, name):
    first, second = pair
    case = run({first: Cheat(computes=noisy), second: SECOND[name]})
    verdict = judge(nano, case)
    assert verdict.fault.stage == first, verdict.fault


def test_an_honest_group_costs_one_prefill_and_no_challenge(nano, run):
    asked = []
    verdict = judge(nano, run({}), asked)
    assert (verdict.outcome, verdict.fault, verdict.replayed) == ("accepted", None, 0)
    assert asked == []


def honest_trials(model, batches: int, size: int) -> None:
    for batch in range(batches):
        traces = Pipeline(model).decode(prompts_of(size, 6 + batch), first_seed=1000 * batch)
        for trace in traces:
            verdict = judge(model, close(trace, {}, trace))
            assert verdict.outcome == "accepted" and verdict.replayed == 0, verdict


def test_honest_groups_are_accepted(nano):
    honest_trials(nano, batches=1, size=12)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_honest_groups_are_accepted_in_a_thousand_trials(nano):
    honest_trials(nano, batches=20, size=50)


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize(
    "hands_out", [lambda rows: None, lambda rows: rows + 1, lambda rows: rows[:-1]]
)
def test_who_withholds_its_input_is_named_and_not_the_stage_before(nano, run, stage, hands_out):
    case = run({stage: Cheat(computes=noisy, hands_out=hands_out)})
    verdict = judge(nano, case)
    assert (verdict.fault.stage, verdict.fault.kind) == (stage, "withheld_input")


def test_a_stage_that_lied_is_named_even_if_the_next_one_withholds(nano, run):
    case = run({1: Cheat(computes=noisy), 2: Cheat(hands_out=lambda rows: None)})
    assert judge(nano, case).fault.stage == 1


@pytest.mark.parametrize("stage", range(STAGES))
def test_an_incomplete_group_is_not_guilty(nano, run, stage):
    case = run({(stage + 1) % STAGES: Cheat(computes=noisy)})
    del case.records[stage]
    verdict = judge(nano, case)
    assert (verdict.outcome, verdict.missing, verdict.failing_indices) == (
        "incomplete",
        (stage,),
        [],
    )


def test_a_claim_that_the_last_stage_did_not_sign_is_missing(nano, run):
    case = run({})
    forged = replace(case.transcript, output_ids=[7] * TOKENS)
    elsewhere = replace(case.transcript, trace_id="f" * 32)
    old = replace(case.transcript, stage_proofs=[case.records[0].to_bytes()])
    for changed in (
        {"signature": None},
        {"transcript": forged},
        {"transcript": elsewhere, "signature": elsewhere.sign(KEYS[-1])[1]},
        {"transcript": old, "signature": old.sign(KEYS[-1])[1]},
    ):
        verdict = judge(nano, case, **changed)
        assert (verdict.outcome, verdict.missing) == ("incomplete", (STAGES - 1,))


def statement(role, case, link, content):
    return link_digest(role, case.task.digest(), link, content)


@pytest.mark.parametrize("stage", range(STAGES - 1))
def test_two_that_agree_on_two_outputs_convict_the_sender(nano, run, stage):
    """The sender's record has another output, with a receipt that the receiver signed as well."""
    case = run({})
    content = bytes(32)
    receipt = KEYS[stage + 1].sign(statement("receipt", case, stage, content))
    record = replace(case.records[stage], output_digest=content, receipt=receipt)
    case.records[stage] = record.signed(KEYS[stage])
    fault = judge(nano, case).fault
    assert (fault.stage, fault.kind) == (stage, "sent_other_than_committed")


@pytest.mark.parametrize("stage", range(1, STAGES))
def test_a_receiver_cannot_frame_the_sender_with_an_input_that_it_made_up(nano, run, stage):
    """Even if it computes from it, hands it out and signs itself what the sender should have."""
    case = run({})
    made_up = case.kept[stage] * 2
    content = rows_digest(made_up)
    own = KEYS[stage].sign(statement("dispatch", case, stage - 1, content))
    record = replace(case.records[stage], input_digest=content, dispatch=own)
    case.records[stage] = record.signed(KEYS[stage])
    case.kept[stage] = made_up
    transcript = replace(case.transcript, stage_proofs=[case.records[STAGES - 1].to_bytes()])
    signature = transcript.sign(KEYS[-1])[1]
    fault = judge(nano, case, transcript=transcript, signature=signature).fault
    assert (fault.stage, fault.kind) == (stage, "lied_about_input")


def claim(case: Case, output_ids) -> dict:
    transcript = replace(case.transcript, output_ids=output_ids)
    return {"transcript": transcript, "signature": transcript.sign(KEYS[-1])[1]}


def test_other_tokens_in_the_transcript_than_were_sent_are_the_last_stages(nano, run):
    case = run({})
    tokens = [token % 200 + 1 for token in case.transcript.output_ids]
    fault = judge(nano, case, **claim(case, tokens)).fault
    assert (fault.stage, fault.kind) == (STAGES - 1, "sent_other_than_committed")
    early = run({1: Cheat(computes=noisy)})
    assert judge(nano, early, **claim(early, tokens)).fault.stage == 1


@pytest.mark.parametrize("tokens", [[], [10**6] * TOKENS, [-1] * TOKENS])
def test_tokens_that_nothing_computes_with_are_the_last_stages(nano, run, tokens):
    case = run({})
    assert judge(nano, case, **claim(case, tokens)).failing_indices == [STAGES - 1]


def test_a_drift_that_no_stage_exceeds_alone_is_refused_and_punishes_nobody(nano, run):
    off = Cheat(computes=lambda came, made: noise(0.06, made))
    case = run({0: off, 1: off, 2: off})
    verdict = judge(nano, case, limits=Limits(), row_error=0.1)
    assert verdict.outcome == "rejected" and verdict.replayed == STAGES
    assert verdict.fault is None and verdict.failing_indices == [] and verdict.reasons


def huge(rows):
    """Finite where it was computed, infinite as bfloat16."""
    sent = rows.clone()
    sent[..., 0] = 3.4e38
    return sent


def recommitted(case: Case) -> dict:
    """The last stage's claim with the record that it has now."""
    records = [case.records[STAGES - 1].to_bytes()]
    transcript = replace(case.transcript, stage_proofs=records, proofs=case.records[3].proofs)
    return {"transcript": transcript, "signature": transcript.sign(KEYS[-1])[1]}


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize(
    "rows", [torch.tensor(1.0), torch.zeros(0), torch.zeros(3, 2, dtype=torch.complex64)]
)
def test_what_is_no_rows_is_not_handed_out(nano, run, stage, rows):
    case = run({stage: Cheat(computes=noisy, hands_out=lambda kept: rows)})
    fault = judge(nano, case).fault
    assert (fault.stage, fault.kind) == (stage, "withheld_input")


def relinked(case: Case, link: int, content: Tensor) -> None:
    """Both ends of a link have signed other content; the receiver hands it out, and proves junk."""
    receiver, digest = (link + 1) % STAGES, rows_digest(content)
    sent = KEYS[link].sign(statement("dispatch", case, link, digest))
    receipt = KEYS[receiver].sign(statement("receipt", case, link, digest))
    gave = replace(case.records[link], output_digest=digest, receipt=receipt)
    case.records[link] = gave.signed(KEYS[link])
    got = replace(
        case.records[receiver], input_digest=digest, dispatch=sent, proofs=constant(b"", b"")
    )
    case.records[receiver] = got.signed(KEYS[receiver])
    case.kept[receiver] = content


@pytest.mark.parametrize("link", range(STAGES - 1))
@pytest.mark.parametrize("name", ["huge", "complex64", "int64", "bool"])
def test_rows_that_nothing_can_be_proven_of_are_their_senders(nano, run, link, name):
    case = run({})
    kept = case.kept[link + 1]
    relinked(case, link, huge(kept) if name == "huge" else kept.to(getattr(torch, name)))
    fault = judge(nano, case, **recommitted(case)).fault
    assert (fault.stage, fault.kind) == (link, "sent_other_than_committed")


@pytest.mark.parametrize(
    "tokens", [torch.zeros(3, 4, dtype=torch.int64), torch.zeros(3), torch.tensor([10**6])]
)
def test_tokens_that_nothing_computes_with_are_not_to_be_countersigned(nano, run, tokens):
    case = run({})
    got = rows_digest(tokens)
    sent = KEYS[-1].sign(statement("dispatch", case, STAGES - 1, got))
    first = replace(case.records[0], input_digest=got, dispatch=sent)
    case.records[0] = first.signed(KEYS[0])
    case.kept[0] = tokens
    fault = judge(nano, case).fault
    assert (fault.stage, fault.kind) == (0, "lied_about_input")


class Broken:
    """The verifier's model with overflow in its last stage."""

    def __init__(self, model):
        self._stages = ModelStages(model, STAGES)
        self.vocab_size = self._stages.vocab_size

    def run(self, stage, rows):
        return self._stages.run(stage, rows) * (float("inf") if stage == STAGES - 1 else 1)


def test_states_of_ours_that_are_not_finite_are_nobodys_fault(nano, run):
    case = run({})
    with pytest.raises(UnprovableActivations, match="NaN or infinity"):
        judge_group(
            case.task, case.transcript, case.signature, case.records, Broken(nano),
            case.kept.get, lambda states, proofs: ProofVerdict(True, ()),
        )  # fmt: skip
