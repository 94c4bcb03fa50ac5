"""What the stages of a pipeline sign, and the names of their files.

A group of S nodes holds a model by layers. Stage 0 turns tokens into hidden states, each stage
sends the states of every position to the next, the last one samples and sends tokens back to
stage 0. Per trace every stage signs one record: the digest of what came in, the digest of what went
out, and proofs of its output (un-normed states; the last stage: normed ones).

Each link is signed from both ends, and no honest node goes on without the other end's signature:
- the sender signs the digest of what it sent (`dispatch`); the receiver refuses one that is not
  the digest of what it got, and keeps it in its record, for its input;
- the receiver countersigns that digest (`receipt`); the sender refuses one that is not the digest
  of what it sent, and keeps it in its record, for its output.
Who refuses, or does not answer, stops the trace: the group is incomplete and nobody is guilty. A
record that its own node signed and whose dispatch or receipt does not fit is therefore that node's
fault, and a node that signed two digests for one link has convicted itself. `StageSigner` is the
honest node's side of this.

All signatures are bound to one task; a trace that is started again is another task (`attempt`), so
that nothing signed in a run that was cut short can be held against anybody.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from toploc.errors import LinkRefused, MalformedRecord
from toploc.signing import SIGNATURE_BYTES, SigningKey, verify
from toploc.transcript import Transcript, digest

Role = Literal["dispatch", "receipt"]

_FILE_NAME = re.compile(
    r"(.*)-([0-9a-fA-F]+)-([0-9]{1,9})-([0-9]{1,9})-([0-9]{1,9})(\.[0-9A-Za-z_]+)"
)
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class GroupFile:
    """`<prefix>-<group id, hex>-<group size>-<file number>-<stage index><ext>`."""

    prefix: str
    group_id: str
    size: int
    number: int
    index: int
    ext: str

    @classmethod
    def parse(cls, name: str) -> "GroupFile":
        """The parts of a stage's file name."""
        match = _FILE_NAME.fullmatch(name)
        if match is None:
            raise MalformedRecord(
                f"file name {name[:200]!r} is not that of a stage's file: "
                "<prefix>-<group id, hex>-<group size>-<file number>-<stage index>.<ext>"
            )
        prefix, group_id, size, number, index, ext = match.groups()
        file = cls(prefix, group_id, int(size), int(number), int(index), ext)
        if not file.index < file.size:
            raise MalformedRecord(
                f"file name {name[:200]!r}: stage index {file.index} of a group of {file.size}; "
                f"stages count from 0"
            )
        return file

    @property
    def group_name(self) -> str:
        """The name of the whole group's file: without the stage index."""
        return f"{self.prefix}-{self.group_id}-{self.size}-{self.number}{self.ext}"

    @property
    def stage_names(self) -> tuple[str, ...]:
        """The names of all stages' files, by stage."""
        head = f"{self.prefix}-{self.group_id}-{self.size}-{self.number}"
        return tuple(f"{head}-{index}{self.ext}" for index in range(self.size))


@dataclass(frozen=True, slots=True)
class GroupTask:
    """What a group was asked for in one trace, as the trusted side knows it."""

    group_id: str
    members: tuple[str, ...]
    """Node ids by stage."""
    trace_id: str
    model_revision: str
    prompt_ids: Sequence[int]
    sampling: str
    seed: int
    attempt: int = 0
    """Counts how often the group was asked for this trace."""

    def digest(self) -> bytes:
        """What every signature of the group in this trace is bound to."""
        return digest(
            "group-task",
            self.group_id,
            [member.encode() for member in self.members],
            self.trace_id,
            self.model_revision,
            np.asarray(self.prompt_ids, dtype=np.int64),
            self.sampling,
            self.seed,
            self.attempt,
        )

    def answered_by(self, trace: Transcript) -> bool:
        """Whether a transcript is the last stage's answer to this task."""
        return (
            trace.node_id == self.members[-1]
            and trace.group_id == self.group_id
            and trace.trace_id == self.trace_id
            and trace.model_revision == self.model_revision
            and list(trace.prompt_ids) == list(self.prompt_ids)
            and trace.sampling == self.sampling
            and trace.seed == self.seed
        )


def rows_digest(rows: Tensor) -> bytes:
    """The exact digest of hidden states [positions, hidden] as sent, or of token ids (int64)."""
    raw = rows.detach().cpu().contiguous()
    if raw.dim() == 0:
        raise MalformedRecord("a single number is no rows; give [positions, hidden] or token ids")
    shape = np.asarray(raw.shape, dtype=np.int64)
    return digest("rows", str(raw.dtype), shape, raw.view(torch.uint8).numpy().tobytes())


def tokens_digest(output_ids: Sequence[int]) -> bytes:
    """The digest of the tokens that the last stage sends to stage 0."""
    return rows_digest(torch.tensor(list(output_ids), dtype=torch.int64))


def link_digest(role: Role, task: bytes, sender: int, content: bytes) -> bytes:
    """What both ends of a link sign: `content` went from stage `sender` to the next one."""
    return digest(f"link-{role}", task, sender, content)


@dataclass(frozen=True, slots=True)
class StageRecord:
    """What one stage answers for in one trace."""

    stage: int
    task: bytes
    """Digest of the group's task."""
    input_digest: bytes
    output_digest: bytes
    """Of the tokens, for the last stage."""
    proofs: bytes
    dispatch: bytes
    """The previous stage's signature on the input."""
    receipt: bytes
    """The next stage's signature on the output."""
    signature: bytes = b""

    def digest(self) -> bytes:
        """What the stage signs: the whole record."""
        return digest(
            "stage-record",
            self.stage,
            self.task,
            self.input_digest,
            self.output_digest,
            self.proofs,
            self.dispatch,
            self.receipt,
        )

    def signed(self, key: SigningKey) -> "StageRecord":
        """This record with its node's signature."""
        return replace(self, signature=key.sign(self.digest()))

    def to_bytes(self) -> bytes:
        """Stage (4 bytes, big-endian), 3 digests, 3 signatures, then the proofs."""
        head = self.stage.to_bytes(4, "big") + self.task + self.input_digest + self.output_digest
        return head + self.dispatch + self.receipt + self.signature + self.proofs

    @classmethod
    def from_bytes(cls, data: bytes) -> "StageRecord":
        """Parse what `to_bytes` gives; the contents are for the judge."""
        sizes = (4, *[_DIGEST_BYTES] * 3, *[SIGNATURE_BYTES] * 3)
        if not isinstance(data, bytes) or len(data) < sum(sizes):
            got = f"{len(data)} bytes" if isinstance(data, bytes) else type(data).__name__
            raise MalformedRecord(f"a stage record has at least {sum(sizes)} bytes, got {got}")
        parts, start = [], 0
        for size in sizes:
            parts.append(data[start : start + size])
            start += size
        stage, task, came, went, dispatch, receipt, signature = parts
        number = int.from_bytes(stage, "big")
        return cls(number, task, came, went, data[start:], dispatch, receipt, signature)


class StageSigner:
    """An honest stage in one trace: signs each thing once, and nothing that does not fit."""

    def __init__(self, task: GroupTask, stage: int, key: SigningKey) -> None:
        if task.members[stage] != key.node_id:
            raise LinkRefused(f"stage {stage} is {task.members[stage]}, the key {key.node_id}")
        self._task, self._stage, self._key = task, stage, key
        self._digest = task.digest()
        self._sent: bytes | None = None
        self._came: tuple[bytes, bytes] | None = None

    def dispatch(self, content: bytes) -> bytes:
        """Signature for the next stage on the digest of what it is sent."""
        if self._sent is not None:
            raise LinkRefused(f"stage {self._stage} has signed its output already")
        self._sent = content
        return self._key.sign(link_digest("dispatch", self._digest, self._stage, content))

    def countersign(self, dispatch: bytes, content: bytes) -> bytes:
        """Receipt for the previous stage; `content` is the digest of what really came."""
        sender = (self._stage - 1) % len(self._task.members)
        if self._came is not None:
            raise LinkRefused(f"stage {self._stage} has countersigned its input already")
        if not link_holds("dispatch", self._task, self._digest, sender, content, dispatch):
            raise LinkRefused(f"stage {sender} did not sign what it sent to stage {self._stage}")
        self._came = content, dispatch
        return self._key.sign(link_digest("receipt", self._digest, sender, content))

    def record(self, receipt: bytes, proofs: bytes) -> StageRecord:
        """The signed record, once the next stage's receipt is there."""
        if self._sent is None or self._came is None:
            raise LinkRefused(f"stage {self._stage} has not both received and sent")
        if not link_holds("receipt", self._task, self._digest, self._stage, self._sent, receipt):
            raise LinkRefused(f"the receipt is not for what stage {self._stage} sent")
        content, dispatch = self._came
        record = StageRecord(
            self._stage, self._digest, content, self._sent, proofs, dispatch, receipt
        )
        return record.signed(self._key)


def link_holds(
    role: Role, task: GroupTask, task_digest: bytes, sender: int, content: bytes, signature: bytes
) -> bool:
    """Whether the end of a link that has to sign in this role signed this content."""
    signer = sender if role == "dispatch" else (sender + 1) % len(task.members)
    statement = link_digest(role, task_digest, sender, content)
    return verify(task.members[signer], statement, signature)


def present(
    records: Mapping[int, StageRecord], task: GroupTask
) -> tuple[dict[int, StageRecord], tuple[int, ...]]:
    """The records that their members signed for this task, and the stages that have none.

    A record with another's signature, or of another task, may have been put there by anybody: it
    says nothing about its stage, so the stage's record is missing.
    """
    expected = task.digest()
    found = {
        stage: record
        for stage, record in records.items()
        if stage == record.stage
        and record.task == expected
        and stage in range(len(task.members))
        and verify(task.members[stage], record.digest(), record.signature)
    }
    return found, tuple(stage for stage in range(len(task.members)) if stage not in found)
