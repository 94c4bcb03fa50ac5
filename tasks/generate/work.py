"""A node's side of generate: decode the planned batches, prove and sign them, write one file.

Invariants: the node sees prompt ids, sampling, seeds and trace ids, never a task's answer; it
writes one file, which its agent uploads; proofs are made from the hidden states while they pass, 32
rows at a time, and nothing of the states is kept; what the node answers for is signed with its key.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from data_contracts.ids import canonical_json
from data_contracts.text import table_from_rows
from infra.inference.protocol import (
    PROOF_ROWS,
    Completion,
    Engine,
    Piece,
    Request,
    SamplingParams,
)
from infra.storage.parquet import parquet_bytes
from tasks.generate import upload
from toploc.build import prove_all
from toploc.signing import SigningKey
from toploc.transcript import Transcript

TOPK = 128
"""Values of a chunk that one proof fixes (INTELLECT-2: 258 bytes a proof)."""


class ProofSink:
    """Collects the proofs of each trace, in order."""

    def __init__(self) -> None:
        self._proofs: dict[str, list[bytes]] = {}

    def __call__(self, pieces: Sequence[Piece]) -> None:
        """Prove pieces of at most 32 rows each; one that several traces share is proven once."""
        states = {id(hidden): hidden for _, _, hidden in pieces}
        built = prove_all([*states.values()], topk=TOPK, decode_batching_size=PROOF_ROWS)
        proofs = dict(zip(states, built, strict=True))
        for trace_id, _, hidden in pieces:
            self._proofs.setdefault(trace_id, []).append(proofs[id(hidden)])

    def of(self, trace_id: str) -> bytes:
        """The stored form: the proofs of a trace one after the other."""
        return b"".join(self._proofs.get(trace_id, ()))


def generate_shard(
    payload: dict[str, Any],
    engine_of: Callable[[str], Engine],
    out: Path,
    key: SigningKey,
    progress: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """Generate one shard into a file in `out`; returns its rows and output tokens.

    `progress` is told the share that is done, after each batch.
    """
    engine = engine_of(payload["model"])
    if engine.revision != payload["revision"]:
        raise ValueError(
            f"model {payload['model']} has revision {engine.revision} here, the plan wants "
            f"{payload['revision']}: install the weights that the run was planned with"
        )
    sampling = payload["sampling"]
    params = SamplingParams(**sampling | {"stop": tuple(sampling["stop"])})
    rows: list[dict[str, Any]] = []
    for number, batch in enumerate(payload["batches"], 1):
        sink = ProofSink()
        requests = [Request(r["trace_id"], tuple(r["prompt_ids"]), r["seed"]) for r in batch]
        completions = engine.generate(requests, params, sink)
        rows += [
            _signed(_row(completion, sink, engine.environment), request, payload, key)
            for request, completion in zip(requests, completions, strict=True)
        ]
        progress(number / len(payload["batches"]))
    data = parquet_bytes(table_from_rows(rows, upload.SCHEMA))
    (out / "traces.parquet").write_bytes(data)
    return {
        "rows": len(rows),
        "tokens": sum(len(row["output_ids"]) for row in rows),
    }


def _row(completion: Completion, sink: ProofSink, engine: str) -> dict[str, Any]:
    return {
        "trace_id": completion.trace_id,
        "output_ids": completion.output_ids,
        "logprobs": completion.logprobs,
        "status": completion.status,
        "finish_reason": completion.finish_reason,
        "error": completion.error,
        "proofs": sink.of(completion.trace_id),
        "engine": engine,
        "seconds": completion.seconds,
    }


def _signed(
    row: dict[str, Any], request: Request, payload: dict[str, Any], key: SigningKey
) -> dict[str, Any]:
    transcript = Transcript(
        trace_id=request.trace_id,
        model_revision=payload["revision"],
        prompt_ids=request.prompt_ids,
        output_ids=row["output_ids"],
        sampling=canonical_json(payload["sampling"]),
        seed=request.seed,
        status=row["status"],
        finish_reason=row["finish_reason"],
        logprobs=row["logprobs"],
        proofs=row["proofs"],
        engine=row["engine"],
        node_id=key.node_id,
    )
    transcript_hash, signature = transcript.sign(key)
    return row | {"transcript_hash": transcript_hash, "signature": signature}
