from dataclasses import replace

import torch

from toploc.build import prove
from toploc.misplaced import Copies, permuted
from toploc.transcript import Transcript

ROWS, HIDDEN = 100, 96


def states(seed):
    generator = torch.Generator().manual_seed(seed)
    channels = torch.rand(HIDDEN, generator=generator) ** 4 * 20 + 0.5
    return (torch.randn(ROWS, HIDDEN, generator=generator) * channels).bfloat16()


def chunks(proofs):
    return [proofs[start : start + 258] for start in range(0, len(proofs), 258)]


def test_chunks_in_another_order_are_told_from_other_faults():
    hidden = states(1)
    first, second, third, last = chunks(prove(hidden))
    (reason,) = permuted(hidden, first + third + second + last)
    assert reason in {
        "permuted_chunks: the proof at chunk 1 is that of chunk 2",
        "permuted_chunks: the proof at chunk 2 is that of chunk 1",
    }
    assert permuted(hidden, b"".join([last, second, third, first]))
    assert permuted(hidden, prove(states(2))) == []
    assert permuted(hidden, chunks(prove(states(2)))[0] + second + third + last) == []
    assert permuted(hidden[:32], prove(states(2)[:32])) == []


def transcript(name, tokens, proofs, prompt=(1, 2)):
    return Transcript(
        name * 32,
        "r",
        prompt,
        tokens,
        "{}",
        1,
        "ok",
        "stop",
        [-1.0] * len(tokens),
        proofs,
        "e",
        "n",
    )


def test_a_proof_of_another_text_is_a_copy_and_one_of_the_same_text_is_not():
    hidden = states(1)
    tokens = list(range(ROWS))
    source = transcript("a", tokens, prove(hidden))
    same_start = [*tokens[:40], 7, *tokens[41:]]
    twin = transcript("b", same_start, chunks(prove(hidden))[0] + prove(states(2))[258:])
    copied = replace(twin, trace_id="c" * 32, proofs=prove(hidden))
    other_prompt = replace(source, trace_id="d" * 32, prompt_ids=(1, 3))
    moved = transcript("e", tokens[:60], b"".join(chunks(prove(hidden))[1:3]))
    unlike = transcript("f", tokens, prove(states(4)))
    found = Copies([source, twin, copied, other_prompt, moved, unlike])
    assert Copies([source, twin, unlike]).of(source) == []
    assert Copies([source, twin, unlike]).of(twin) == []
    assert found.of(copied) == [
        f"copied_proof: the proof at chunk 0 is that of chunk 0 of trace {'d' * 32}, whose text is "
        "another"
    ]
    assert (
        Copies([source, copied])
        .of(copied)[0]
        .startswith(f"copied_proof: the proof at chunk 1 is that of chunk 1 of trace {'a' * 32}")
    )
    assert (
        Copies([source, other_prompt]).of(other_prompt)[0].startswith("copied_proof: the proof a")
    )
    assert "chunk 0 is that of chunk 1" in Copies([source, moved]).of(moved)[0]
    assert found.of(unlike) == []
