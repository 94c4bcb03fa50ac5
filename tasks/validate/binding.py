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
    transcripts = {trace["trace_id"]: Transcript.of_row(trace) for trace in traces}
    copies = Copies(list(transcripts.values()), TOPK, PROOF_ROWS)
    judged = {}
    for trace in traces:
        transcript, verdict = transcripts[trace["trace_id"]], verdicts[trace["trace_id"]]
        reasons, figures = list(verdict.reasons), dict(verdict.figures)
        unsigned = transcript.faults(trace["transcript_hash"], trace["signature"])
        if unsigned:
            reasons = unsigned if verdict.verdict == "crashed" else reasons + unsigned
            figures["soft"] = True
        if verdict.verdict == "rejected" and (copied := copies.of(transcript)):
            # No limit says that, wherever it ran: honest proofs of other contexts never have the
            # same bytes.
            reasons += copied
            figures.pop(RATE, None)
            if not unsigned:
                figures.pop("soft", None)
        refused = "rejected" if unsigned else verdict.verdict
        judged[trace["trace_id"]] = Verdict(refused, reasons, figures)
    return judged
