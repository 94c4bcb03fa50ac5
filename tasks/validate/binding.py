"""Whether a trace is what its node signed, and where the proofs of a refused one come from.

Invariants: a trace whose hash or signature does not hold is never accepted, and proves nothing
against its node: the signature held when the trace was taken in, so somebody else changed it since.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from infra.inference.protocol import PROOF_ROWS
from tasks.validate.check import RATE, TOPK, Verdict
from toploc.misplaced import Copies
from toploc.transcript import Transcript

COLUMNS = [field.name for field in fields(Transcript)] + ["transcript_hash", "signature"]


def bound(
    traces: Sequence[Mapping[str, Any]], verdicts: Mapping[str, Verdict]
) -> dict[str, Verdict]:
    """The verdicts of traces, refused where a trace is not what was signed."""
    judged = with_copies(traces, verdicts)
    for trace in traces:
        name = trace["trace_id"]
        unsigned = Transcript.of_row(trace).faults(trace["transcript_hash"], trace["signature"])
        if unsigned:
            own, found = verdicts[name], judged[name]
            reasons = unsigned if own.verdict == "crashed" else [*own.reasons, *unsigned]
            reasons += found.reasons[len(own.reasons) :]
            judged[name] = Verdict("rejected", reasons, found.figures | {"soft": True})
    return judged


def with_copies(
    traces: Sequence[Mapping[str, Any]], verdicts: Mapping[str, Verdict]
) -> dict[str, Verdict]:
    """The verdicts of traces, with where a refused one has its proofs from.

    For traces whose signatures are known to hold.
    """
    judged = dict(verdicts)
    refused = [trace for trace in traces if verdicts[trace["trace_id"]].verdict == "rejected"]
    if not refused:
        return judged
    copies = Copies([Transcript.of_row(trace) for trace in traces], TOPK, PROOF_ROWS)
    for trace in refused:
        if copied := copies.of(Transcript.of_row(trace)):
            # No limit says that, wherever it ran: honest proofs of other contexts never have the
            # same bytes.
            found = verdicts[trace["trace_id"]]
            figures = {k: v for k, v in found.figures.items() if k not in (RATE, "soft")}
            judged[trace["trace_id"]] = Verdict("rejected", found.reasons + copied, figures)
    return judged
