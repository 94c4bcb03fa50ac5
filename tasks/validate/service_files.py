"""What the validator service takes in: files of traces, by name, from storage.

A file is parquet with the columns of the `traces` contract in its order and types: what a node
uploads, together with the prompt ids, sampling parameters, seeds and trace ids that it was given,
its node id and its signature. The files that a run commits are of that form. A group's file has the
encoded stage records of each trace in `stage_proofs`, the stage's own last.

Invariants: a name cannot lead out of the root; nothing is read before its size is known, nothing is
parsed before its hash is the one that was asked for, and parsing happens in a child with little
memory; a row that the contract refuses, that its node did not sign, or whose text is not that of
its tokens refuses the file.
"""

import hashlib
import io
from typing import Any

import pyarrow as pa

from data_contracts import generate as contract
from infra.inference.prompts import ChatTokenizer
from infra.storage import Store
from tasks.generate.upload import MAX_FILE_BYTES, Reader
from tasks.validate.completion import completion_problems
from tasks.validate.errors import BadUpload
from toploc.transcript import Transcript

MAX_NAMED = 5


class UploadReader:
    """Reads uploads below one root."""

    def __init__(self, store: Store, tokenizer: ChatTokenizer, revision: str):
        self._store = store
        self._tokenizer = tokenizer
        self._revision = revision
        self._reader = Reader()

    def read(self, name: str, sha256: str, node_id: str | None) -> list[dict[str, Any]]:
        """The rows of a file. BadUpload says why it cannot be accepted.

        `node_id` is whose file it is said to be; None where that is not known.
        """
        size = self._store.size(name)
        if size > MAX_FILE_BYTES:
            raise BadUpload(f"too_large: {size} bytes, allowed are {MAX_FILE_BYTES}")
        data = self._store.read_bytes(name)
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise BadUpload(f"other_sha256: the object has {found}, {sha256} was triggered")
        table = self._parse(data)
        self._check_model(table)
        report = contract.validate(table)
        bad = [*report.blocking, *sorted(set(report.bad_rows.values()))]
        if bad:
            raise BadUpload("contract: " + "; ".join(map(str, bad[:MAX_NAMED])))
        rows: list[dict[str, Any]] = table.to_pylist()
        for row in rows:
            faults = Transcript.of_row(row).faults(row["transcript_hash"], row["signature"])
            faults += completion_problems(row, self._tokenizer)
            if faults:
                raise BadUpload(f"{faults[0]} (trace {row['trace_id']})")
        nodes = sorted({row["node_id"] for row in rows})
        if len(nodes) != 1 or node_id not in (None, nodes[0]):
            raise BadUpload(
                f"other_node: its rows are of {', '.join(nodes[:MAX_NAMED])}, the file of "
                f"{node_id or 'one node'}"
            )
        return rows

    def close(self) -> None:
        """End the child."""
        self._reader.close()

    def _parse(self, data: bytes) -> pa.Table:
        stream, problem = self._reader.read(data, None, contract.SCHEMA)
        if problem:
            raise BadUpload(f"unreadable: {problem}")
        return pa.ipc.open_stream(io.BytesIO(stream)).read_all()

    def _check_model(self, table: pa.Table) -> None:
        for column, ours in (
            ("model", self._tokenizer.model_id),
            ("model_revision", self._revision),
        ):
            others = sorted(set(table[column].to_pylist()) - {ours})
            if others:
                raise BadUpload(
                    f"other_{column}: {', '.join(name[:80] for name in others[:MAX_NAMED])}; "
                    f"{ours} is served here"
                )
