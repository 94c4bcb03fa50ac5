"""A real model: answers make sense, and prefill repeats decoding within proof noise."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from infra.inference import load_engine
from infra.inference.protocol import Piece, Request, SamplingParams
from infra.models.smollm2 import MODEL_ID
from toploc import build_proofs_bytes, verify_proofs_bytes


@pytest.mark.slow
def test_decoding_and_prefill_agree() -> None:
    engine = load_engine(MODEL_ID)
    questions = ["What is the capital of France?", "Say hello.", "Count from one to ten, in words."]
    requests = []
    for at, question in enumerate(questions * 2):
        ids, opened = engine.render([{"role": "user", "content": question}])
        assert opened == ""
        requests.append(Request(f"t{at}", tuple(ids), seed=at))
    rows: dict[str, list[Tensor]] = {}

    def keep(pieces: Sequence[Piece]) -> None:
        for trace_id, start, piece in pieces:
            assert start == 32 * len(rows.setdefault(trace_id, []))
            rows[trace_id].append(piece)

    params = SamplingParams(temperature=0.6, top_p=0.95, max_tokens=70)
    done = engine.generate(requests, params, keep)
    assert any("Paris" in completion.text for completion in done)
    assert {completion.finish_reason for completion in done} >= {"stop"}
    items = [(r.prompt_ids, c.output_ids) for r, c in zip(requests, done, strict=True)]
    for completion, (hidden, logits) in zip(done, engine.prefill(items), strict=True):
        assert logits.shape == (len(completion.output_ids), 49152)
        proofs = build_proofs_bytes(torch.cat(rows[completion.trace_id]), 32, 128, True)
        results = verify_proofs_bytes(hidden, proofs, 32, 128, True)
        assert max(r.exp_mismatches for r in results) <= 2
        assert max(r.mant_err_mean for r in results) < 0.2
    engine.close()
