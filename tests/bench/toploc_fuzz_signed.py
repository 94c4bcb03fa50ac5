"""Hostile input for what is signed or configured: transcripts, records, names, keys, profiles.

Invariant: a transcript has no fault, and a record belongs to its stage, only if every field, hash
and signature is as its node had it.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from toploc import profile
from toploc.decision import CHUNK_FIGURES, ROW_BANDS, TOKEN_BANDS, TRACE_FIGURES, Limits
from toploc.errors import ToplocError
from toploc.groups import GroupFile, GroupTask, StageRecord, present
from toploc.signing import SigningKey, public_key, verify
from toploc.transcript import Transcript

Draw = Callable[[st.SearchStrategy[Any]], Any]

KEY, OTHER = SigningKey(bytes(32)), SigningKey(bytes([1] * 32))
ENVIRONMENT = "engine|processor|dtype|attention"
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
    engine=ENVIRONMENT,
)
HASH, SIGNATURE = SIGNED.sign(KEY)
TASK = GroupTask("0a", (OTHER.node_id, KEY.node_id), "0" * 32, "r", (1, 2, 3), "{}", 7)
RECORD = StageRecord(1, TASK.digest(), HASH, HASH, SIGNED.proofs, SIGNATURE, SIGNATURE).signed(KEY)
PROFILE = profile.Profile(
    model="m",
    revision="r",
    rate=0.001,
    extrapolated=False,
    traces=100,
    environments=(ENVIRONMENT,),
    modes=("whole",),
    held_out=profile.HeldOut(50, 0, 0.06),
    limits={
        "dtype": Limits(
            {name: (0.5,) * len(TOKEN_BANDS) for name in TRACE_FIGURES}
            | {"error_mean": (4.0,) * len(TOKEN_BANDS)}
            | {"error_typical": (4.0,) * len(TOKEN_BANDS)},
            {"chunk_error": (8.0,) * len(ROW_BANDS), "chunk_missing": (0.3,) * len(ROW_BANDS)},
            token_margin=0.5,
            least_error=0.0,
        )
    },
)
assert set(PROFILE.limits["dtype"].chunk) == set(CHUNK_FIGURES)
PROFILE_TEXT = PROFILE.to_json()

PIECES = st.sampled_from(
    ["{", "}", "[", "]", ",", '"', ":", "0", "-", "=", "\n", "NaN", "1e999", "null", "true", "é",
     "\0", "\ud800", "9" * 400, "9" * 5000, "[" * 3000, '"format"', "-0-0-0.x", "../", "|"]
) | st.text(max_size=3)  # fmt: skip
_int64 = st.integers(-(2**63), 2**63 - 1)
_ids = st.lists(_int64, max_size=6).map(tuple)


@st.composite
def changed_text(draw: Draw, texts: st.SearchStrategy[str]) -> str:
    """A text with up to three pieces put in, or in the place of some characters."""
    text = draw(texts)
    for piece in draw(st.lists(PIECES, max_size=3)):
        start = draw(st.integers(0, len(text)))
        text = text[:start] + piece + text[start + draw(st.sampled_from([0, 1, 1, 5, 40])) :]
    return text


@st.composite
def changed_bytes(draw: Draw, data: bytes) -> bytes:
    """These bytes, or others of about the length."""
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return data[: draw(st.integers(0, len(data) - 1))]
    if kind == 1:
        return data + draw(st.binary(min_size=1, max_size=80))
    if kind == 2:
        return draw(st.binary(min_size=len(data), max_size=len(data)))
    at = draw(st.integers(0, len(data) - 1))
    return data if kind == 3 else data[:at] + draw(st.binary(max_size=4)) + data[at + 1 :]


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "trace_id": changed_text(st.just(SIGNED.trace_id)),
    "model_revision": st.text(max_size=4),
    "prompt_ids": _ids | st.just((1, 2)),
    "output_ids": _ids | st.sampled_from([(5, 4), (3, 4, 5), (4,)]),
    "sampling": changed_text(st.just(SIGNED.sampling)),
    "seed": _int64,
    "status": st.sampled_from(["ok", "okstop", "", "error"]),
    "finish_reason": st.sampled_from(["stop", "", "okstop", "length"]),
    "logprobs": st.lists(st.floats(width=32), max_size=3).map(tuple),
    "proofs": changed_bytes(SIGNED.proofs),
    "node_id": changed_text(st.just(KEY.node_id)) | st.just(OTHER.node_id),
    "engine": changed_text(st.just(ENVIRONMENT)),
    "group_id": st.none() | st.text(max_size=3),
    "stage_proofs": st.none() | st.lists(changed_bytes(SIGNED.proofs), max_size=2),
}
transcripts = st.fixed_dictionaries({}, optional=FIELDS).map(lambda new: replace(SIGNED, **new))


def same(a: Transcript, b: Transcript) -> bool:
    """Whether they hold the same bits: NaN is NaN, and 0 is not -0."""
    numbers = [np.asarray(one.logprobs, dtype=np.float32).tobytes() for one in (a, b)]
    return numbers[0] == numbers[1] and replace(a, logprobs=()) == replace(b, logprobs=())


def bound(transcript: Transcript, hashed: bytes | None, signature: bytes) -> None:
    """A transcript that is not the signed one has a fault; no two ones have one hash."""
    honest = same(transcript, SIGNED)
    assert (transcript.digest() == HASH) == honest
    hashed = transcript.digest() if hashed is None else hashed
    genuine = honest and (hashed, signature) == (HASH, SIGNATURE)
    assert (transcript.faults(hashed, signature) == []) == genuine


def parsed_record(data: bytes, stage: int) -> None:
    """Other bytes than its own are no stage's record."""
    with suppress(ToplocError):
        record = StageRecord.from_bytes(data)
        assert record.to_bytes() == data
        found, missing = present({stage: record}, TASK)
        genuine = data == RECORD.to_bytes() and stage == 1
        assert (found, missing) == (({1: record}, (0,)) if genuine else ({}, (0, 1)))


def parsed_name(name: str) -> None:
    with suppress(ToplocError):
        file = GroupFile.parse(name)
        assert file.index < file.size
        if file.size <= 64:
            assert GroupFile.parse(file.stage_names[file.index]) == file
        assert file.group_name.startswith(file.prefix)


def parsed_key(name: str, signature: bytes) -> None:
    genuine = (name, signature) == (KEY.node_id, SIGNATURE)
    assert verify(name, HASH, signature) == genuine
    with suppress(ToplocError):
        public_key(name)


def parsed_profile(text: str) -> None:
    with suppress(ToplocError):
        found = profile.parse(text)
        assert profile.parse(found.to_json()) == found


_values = st.sampled_from(
    [10**400, -1, 0, 1, 2**63, 1e308, float("nan"), True, None, ENVIRONMENT, "dtype", "|||"]
) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def changed_profile(draw: Draw) -> str:
    """A profile's JSON with some values replaced, left out or added."""
    tree = json.loads(PROFILE_TEXT)
    for _ in range(draw(st.integers(1, 3))):
        node = tree
        while True:
            keys = sorted(node) if isinstance(node, dict) else range(len(node))
            key = draw(st.sampled_from(keys)) if len(keys) else None
            deeper = None if key is None else node[key]
            if not isinstance(deeper, dict | list) or draw(st.integers(0, 3)) == 0:
                break
            node = deeper
        kind = draw(st.integers(0, 3))
        if kind == 0 and key is not None:
            del node[key]
        elif kind == 1 and isinstance(node, dict):
            node[draw(st.text(max_size=6) | st.sampled_from(sorted(asdict(PROFILE))))] = draw(
                _values
            )
        elif kind == 1:
            node.append(draw(_values))
        elif key is not None:
            node[key] = draw(_values)
    return json.dumps(tree)


_names = (
    st.just("run/part-00ff-4-2-1.parquet")
    | st.from_regex(r"\A.{0,9}-[0-9a-fA-F]{1,9}(-[0-9]{1,10}){3}\.\w{1,8}\Z")
    | st.text(max_size=30)
)

TARGETS: dict[str, tuple[Callable[..., None], tuple[st.SearchStrategy[Any], ...]]] = {
    "transcripts": (
        bound,
        (transcripts, st.none() | changed_bytes(HASH), changed_bytes(SIGNATURE)),
    ),
    "records": (parsed_record, (changed_bytes(RECORD.to_bytes()), st.integers(-1, 3))),
    "names": (parsed_name, (changed_text(_names),)),
    "keys": (
        parsed_key,
        (
            changed_text(st.just(KEY.node_id)) | st.binary(min_size=32, max_size=32).map(bytes.hex),
            changed_bytes(SIGNATURE),
        ),
    ),
    "profiles": (parsed_profile, (changed_text(st.just(PROFILE_TEXT)) | changed_profile(),)),
}
