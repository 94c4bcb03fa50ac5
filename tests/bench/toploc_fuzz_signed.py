"""Hostile input for what is signed or configured: transcripts, records, names, keys, profiles.

Invariant: a transcript has no fault only if every field, hash and signature is as its node had it.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from toploc import profile
from toploc.decision import CHUNK_FIGURES, ROW_BANDS, TOKEN_BANDS, TRACE_FIGURES, Limits
from toploc.errors import ToplocError
from toploc.groups import GroupFile, StageRecord
from toploc.signing import SigningKey, public_key, verify
from toploc.transcript import Transcript

Random = np.random.Generator

KEY, OTHER = SigningKey(bytes(32)), SigningKey(bytes([1] * 32))
SIGNED = Transcript(
    trace_id="0" * 32,
    model_revision="r",
    prompt_ids=(1, 2, 3),
    output_ids=(4, 5),
    sampling='{"temperature":1.0}',
    seed=7,
    status="ok",
    finish_reason="stop",
    logprobs=(-0.5, -0.25),
    proofs=bytes(range(1, 255)),
    node_id=KEY.node_id,
    engine="engine|processor|dtype|attention",
)
HASH, SIGNATURE = SIGNED.sign(KEY)
RECORD = StageRecord(1, bytes(32), HASH, HASH, SIGNED.proofs, SIGNATURE, SIGNATURE).signed(KEY)
PROFILE = profile.Profile(
    model="m",
    revision="r",
    rate=0.001,
    extrapolated=False,
    traces=100,
    environments=("engine|processor|dtype|attention",),
    modes=("whole",),
    held_out=profile.HeldOut(50, 0, 0.06),
    limits={
        "dtype": Limits(
            {name: (1.0,) * len(TOKEN_BANDS) for name in TRACE_FIGURES},
            {name: (1.0,) * len(ROW_BANDS) for name in CHUNK_FIGURES},
            token_margin=0.5,
            least_error=0.0,
        )
    },
).to_json()
PIECES = (
    "{", "}", "[", "]", ",", '"', ":", "0", "-", "NaN", "1e999", "null", "true", "é", "\0",
    "\ud800", "9" * 5000, "[" * 3000, '"format"', "-0-0-0.x", "../", "|",
)  # fmt: skip


def changed_bytes(random: Random, data: bytes) -> bytes:
    kind = random.integers(4)
    if kind == 0:
        return data[: random.integers(len(data))]
    if kind == 1:
        return data + random.bytes(int(random.integers(1, 80)))
    copy = bytearray(data)
    copy[random.integers(len(copy))] ^= int(random.integers(1, 256))
    return bytes(copy) if kind == 2 else random.bytes(len(data))


def changed_text(random: Random, text: str) -> str:
    for _ in range(random.integers(1, 4)):
        start = int(random.integers(len(text) + 1))
        end = start + int(random.choice([0, 1, 1, 5, 40]))
        text = text[:start] + PIECES[random.integers(len(PIECES))] + text[end:]
    return text


def changed_transcript(random: Random) -> Transcript:
    number = int(random.integers(2**62))
    return [
        lambda: replace(SIGNED, trace_id=changed_text(random, SIGNED.trace_id)),
        lambda: replace(SIGNED, model_revision=f"{number}"),
        lambda: replace(SIGNED, prompt_ids=(*SIGNED.prompt_ids, number)),
        lambda: replace(SIGNED, prompt_ids=(1, 2), output_ids=(3, 4, 5)),
        lambda: replace(SIGNED, output_ids=(5, 4)),
        lambda: replace(SIGNED, sampling=changed_text(random, SIGNED.sampling)),
        lambda: replace(SIGNED, seed=number),
        lambda: replace(SIGNED, status="okstop", finish_reason=""),
        lambda: replace(SIGNED, logprobs=(-0.5, np.nan)),
        lambda: replace(SIGNED, proofs=changed_bytes(random, SIGNED.proofs)),
        lambda: replace(SIGNED, node_id=OTHER.node_id),
        lambda: replace(SIGNED, node_id=changed_text(random, SIGNED.node_id)),
        lambda: replace(SIGNED, group_id=f"{number}"),
        lambda: replace(SIGNED, stage_proofs=[SIGNED.proofs]),
        lambda: replace(SIGNED),
    ][random.integers(15)]()


def bound(random: Random) -> None:
    """A transcript that is not the signed one has a fault."""
    transcript = changed_transcript(random)
    hashed, signature = HASH, SIGNATURE
    kind = random.integers(4)
    if kind == 0:
        hashed = changed_bytes(random, HASH)
    elif kind == 1:
        signature = changed_bytes(random, SIGNATURE)
    elif kind == 2:
        hashed = transcript.digest()
    honest = (transcript, hashed, signature) == (SIGNED, HASH, SIGNATURE)
    assert (transcript.faults(hashed, signature) == []) == honest


def parsed_record(random: Random) -> None:
    data = changed_bytes(random, RECORD.to_bytes())
    assert StageRecord.from_bytes(data).to_bytes() == data


def parsed_name(random: Random) -> None:
    name = changed_text(random, "run/part-00ff-4-2-1.parquet")
    file = GroupFile.parse(name)
    assert file.index < file.size


def parsed_key(random: Random) -> None:
    name = changed_text(random, KEY.node_id)
    assert not verify(name, HASH, SIGNATURE) or name == KEY.node_id
    public_key(name)


def parsed_profile(random: Random) -> None:
    text = changed_text(random, PROFILE)
    found = profile.parse(text)
    assert profile.parse(found.to_json()) == found


PARSERS: tuple[Callable[[Random], None], ...] = (
    parsed_record, parsed_name, parsed_key, parsed_profile, bound,
)  # fmt: skip


def signed(random: Random, *_: object) -> None:
    """One of the above; only the package's own errors come out."""
    try:
        PARSERS[random.integers(len(PARSERS))](random)
    except ToplocError:
        pass
