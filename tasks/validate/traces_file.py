"""The proofs of a file of traces: look at them, make them again, judge them.

A file is parquet with the columns of the traces contract, such as a run commits for each shard; a
directory stands for all such files below it. Invariants: a trace id is there once, so that no
trace is judged by another's tokens; a row gets exactly one result, in the order of the file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from data_contracts import generate as contract
from infra.inference.errors import BadItem
from infra.inference.prompts import ChatTokenizer
from infra.inference.protocol import PROOF_ROWS, Engine
from infra.models import registry
from infra.storage.errors import SchemaMismatch
from infra.storage.parquet import conform
from tasks.validate.check import TOPK
from tasks.validate.completion import completion_problems
from tasks.validate.config import ValidateConfig
from tasks.validate.errors import BadTracesFile
from tasks.validate.work import judge
from toploc.build import prove
from toploc.errors import MalformedProof
from toploc.inspection import inspect_proofs
from toploc.transcript import Transcript

_GROUP = 8
"""Rows that are handed on at once: their logits are in memory together, and progress is seen."""


@dataclass(frozen=True)
class Inspection:
    """What one row's proofs say without a model."""

    trace_id: str
    output_tokens: int
    proofs: int
    expected: int
    """One proof per started 32 output tokens."""
    moduli: list[int]
    degrees: list[int]
    problems: list[str]


def read_traces(path: Path) -> pa.Table:
    """The rows of a file or of all parquet files below a directory. Raises BadTracesFile."""
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    tables = [_read_file(file) for file in files]
    if sum(table.num_rows for table in tables) == 0:
        raise BadTracesFile(f"{str(path)!r} holds no traces; give a file that a run has committed")
    table = pa.concat_tables(tables)
    ids = table.column("trace_id").to_pylist()
    if len(set(ids)) != len(ids):
        twice = next(one for one in ids if ids.count(one) > 1)
        raise BadTracesFile(
            f"{str(path)!r} holds trace {twice[:40]!r} more than once; a trace has one row: remove "
            "the others"
        )
    return table


def _read_file(file: Path) -> pa.Table:
    if not file.is_file():
        raise BadTracesFile(f"file {str(file)!r} does not exist; give a parquet file of traces")
    try:
        table = pq.read_table(file)
        table.validate(full=True)
        return conform(table, contract.SCHEMA, str(file))
    except (pa.ArrowException, OSError) as error:
        raise BadTracesFile(f"file {str(file)!r} is not readable as parquet: {error}") from error
    except SchemaMismatch as error:
        raise BadTracesFile(f"no file of traces: {error}") from error


def model_of(table: pa.Table) -> str:
    """The one model that all rows name."""
    models = sorted(set(table.column("model").to_pylist()))
    if len(models) != 1:
        raise BadTracesFile(
            f"the traces are of {len(models)} models: {', '.join(models)[:200]}; give the traces "
            "of one model"
        )
    return str(models[0])


def inspect_traces(table: pa.Table) -> list[Inspection]:
    """What can be said of each row's proofs without a model."""
    places: dict[bytes, str] = {}
    return [_inspect(row, places) for row in table.to_pylist()]


def _inspect(row: dict[str, Any], places: dict[bytes, str]) -> Inspection:
    tokens, proofs = len(row["output_ids"]), row["proofs"]
    expected = ceil(tokens / PROOF_ROWS)
    problems = signing_problems(row)
    try:
        facts = inspect_proofs(proofs, TOPK)
    except MalformedProof as error:
        return Inspection(
            row["trace_id"], tokens, 0, expected, [], [], [*problems, f"proof_length: {error}"]
        )
    if len(facts) != expected:
        problems.append(f"proof_count: {len(facts)} proofs, {tokens} tokens need {expected}")
    for number, one in enumerate(facts):
        problems += [f"proof {number}: {problem}" for problem in one.problems]
        place = f"proof {number} of trace {row['trace_id']}"
        data = proofs[contract.PROOF_BYTES * number : contract.PROOF_BYTES * (number + 1)]
        first = places.setdefault(data, place)
        if first != place:
            problems.append(f"proof {number}: copied: it is {first} as well")
    return Inspection(
        trace_id=row["trace_id"],
        output_tokens=tokens,
        proofs=len(facts),
        expected=expected,
        moduli=[one.modulus for one in facts],
        degrees=[one.degree for one in facts],
        problems=problems,
    )


def signing_problems(row: dict[str, Any]) -> list[str]:
    """Why a row is not what its node signed; one without hash and signature is not looked at."""
    if row["transcript_hash"] is None and row["signature"] is None:
        return []
    return Transcript.of_row(row).faults(row["transcript_hash"], row["signature"])


def judge_traces(
    table: pa.Table, engine: Engine, config: ValidateConfig
) -> Iterator[dict[str, Any]]:
    """Verdict, reasons and figures of each row: the validate stage's, signature's and text's."""
    tokenizer = ChatTokenizer(registry.materialise(engine.model_id), engine.model_id)
    for group in _groups(table):
        verdicts = judge(group, engine, config)
        for row in group:
            verdict = verdicts[row["trace_id"]]
            problems = [*signing_problems(row), *completion_problems(row, tokenizer)]
            refused = problems and verdict.verdict == "accepted"
            yield {
                "trace_id": row["trace_id"],
                "verdict": "rejected" if refused else verdict.verdict,
                "reasons": [*verdict.reasons, *problems],
                "figures": verdict.figures,
            }


@torch.inference_mode()
def prove_traces(table: pa.Table, engine: Engine) -> Iterator[bytes]:
    """Proofs of each row's output, by one prefill of the engine's model; none for no output.

    Raises BadTracesFile for traces of another revision and for tokens that the model cannot read.
    """
    for group in _groups(table):
        for row in group:
            if row["model_revision"] != engine.revision:
                raise BadTracesFile(
                    f"trace {row['trace_id'][:40]!r} is of model revision "
                    f"{row['model_revision'][:40]!r}, {engine.model_id} here is {engine.revision}; "
                    "prove it with the model that made it"
                )
        answered = [row for row in group if row["output_ids"]]
        try:
            computed = engine.prefill([(row["prompt_ids"], row["output_ids"]) for row in answered])
        except BadItem as error:
            bad = answered[error.index]["trace_id"]
            raise BadTracesFile(f"trace {bad[:40]!r} cannot be computed: {error}") from error
        proofs = {
            row["trace_id"]: prove(hidden, topk=TOPK, decode_batching_size=PROOF_ROWS)
            for row, (hidden, _) in zip(answered, computed, strict=True)
        }
        for row in group:
            yield proofs.get(row["trace_id"], b"")


def with_proofs(table: pa.Table, proofs: list[bytes]) -> pa.Table:
    """The table with these proofs; a row whose proofs are others than before loses its signature.

    The node that signed the row did not sign them.
    """
    same = [old == new for old, new in zip(table["proofs"].to_pylist(), proofs, strict=True)]
    table = _replaced(table, "proofs", proofs)
    for name in ("transcript_hash", "signature"):
        kept = [
            value if keep else None
            for value, keep in zip(table[name].to_pylist(), same, strict=True)
        ]
        table = _replaced(table, name, kept)
    return table


def _replaced(table: pa.Table, name: str, values: Sequence[bytes | None]) -> pa.Table:
    field = contract.SCHEMA.field(name)
    return table.set_column(table.column_names.index(name), field, pa.array(values, field.type))


def _groups(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    for first in range(0, table.num_rows, _GROUP):
        yield table.slice(first, _GROUP).to_pylist()
