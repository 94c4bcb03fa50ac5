"""`tracemill verify`: score the rows of a file, one result per row in their order, and sum up.

A row that is broken is a result with a status, never the end of the command. An output file gets
its name when it is complete; until then, and for good when the command is stopped, the results so
far stand whole in `<output>.partial`.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import tee
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import track
from rich.text import Text

from data_contracts.text import clean_text
from flows.errors import BadConfig
from flows.tables import rich_table
from flows.verify_rows import Row, read_rows
from flows.verify_summary import Summary
from verifiers import Score, VerifiersError, refuse_broken, score_many

Result = dict[str, Any]
Write = Callable[[Result], None]

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("score", pa.float64()),
        ("status", pa.string()),
        ("verifier", pa.string()),
        ("detail", pa.large_string()),
        ("seconds", pa.float64()),
    ]
)
"""Columns of a parquet output."""

_BATCH = 1024


def verify_file(path: Path, output: Path | None, workers: int, as_json: bool, err: Console) -> int:
    """Score a file, or stdin for `-`. The exit code: 0 done, 1 stopped or a verifier is broken.

    Results go to `output`, else to stdout; the summary goes to stderr. With `as_json` stdout gets
    one JSON object: the summary and, without an output, the results.
    """
    if output and output.exists() and path.exists() and output.samefile(path):
        raise BadConfig(f"output {str(output)!r} is the input itself; choose another -o")
    summary = Summary()
    try:
        with _as_file(path) as source, _sink(output, as_json, summary) as write:
            _score(source, write, summary, workers, err)
    except KeyboardInterrupt:
        return _stopped("interrupted", summary, output, err)
    except BrokenPipeError:  # the reader of our stdout left; there is nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (VerifiersError, OSError) as error:
        return _stopped(str(error), summary, output, err)
    if not as_json:
        for table in summary.tables():
            err.print(rich_table(table))
    return 0


def _score(source: Path, write: Write, summary: Summary, workers: int, err: Console) -> None:
    total = 0
    types: set[str] = set()
    for row in read_rows(source):
        total += 1
        if isinstance(row.fields.get("task_type"), str) and len(types) < _BATCH:
            types.add(row.fields["task_type"])
    refuse_broken(types)
    rows, asked = tee(read_rows(source))
    scores = score_many((row.fields for row in asked), workers=workers or None)
    pairs = track(
        zip(rows, scores, strict=True),
        "verify",
        total=total,
        console=err,
        disable=not err.is_terminal,
    )
    for row, score in pairs:
        score = replace(score, detail=row.fault) if row.fault else score
        write(_result(row, score))
        summary.add(row.fields.get("task_type"), score)


def _result(row: Row, score: Score) -> Result:
    return {
        "id": row.id,
        "score": score.score,
        "status": score.status,
        "verifier": score.verifier,
        "detail": score.detail,
        "seconds": round(score.seconds, 4),
    }


def _stopped(why: str, summary: Summary, output: Path | None, err: Console) -> int:
    kept = f"; they stand in {_partial(output)}" if output and _partial(output).exists() else ""
    err.print(Text(f"stopped after {summary.rows} results: {why}{kept}"), soft_wrap=True)
    return 1


@contextmanager
def _as_file(path: Path) -> Iterator[Path]:
    """The path; for `-` a copy of stdin, since a file is read twice."""
    if str(path) != "-":
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tracemill-verify-") as folder:
        copy = Path(folder) / "stdin.jsonl"
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield copy


def _partial(output: Path) -> Path:
    return output.with_name(f"{output.name}.partial")


@contextmanager
def _sink(output: Path | None, as_json: bool, summary: Summary) -> Iterator[Write]:
    """Where results go; complete, and under the output's name, when the block ends well."""
    if output is None:
        with _document(summary) if as_json else _lines(sys.stdout) as write:
            yield write
        return
    # A device or a pipe cannot be renamed.
    target = output if output.exists() and not output.is_file() else _partial(output)
    try:
        file = target.open("wb" if output.suffix == ".parquet" else "w")
    except OSError as error:
        raise BadConfig(f"output {str(output)!r} cannot be written: {error.strerror}") from error
    try:
        with file, _table(file) if output.suffix == ".parquet" else _lines(file) as write:
            yield write
    finally:
        if not summary.rows and target != output and sys.exc_info()[0]:
            target.unlink()
    if target != output:
        os.replace(target, output)
    if as_json:
        print(json.dumps(summary.to_json(), indent=2))


@contextmanager
def _lines(file: IO[str]) -> Iterator[Write]:
    yield lambda result: print(json.dumps(result), file=file, flush=True)


@contextmanager
def _document(summary: Summary) -> Iterator[Write]:
    """One JSON object on stdout, written as results come."""
    lead = '{"results": ['

    def write(result: Result) -> None:
        nonlocal lead
        sys.stdout.write(f"{lead}\n{json.dumps(result)}")
        lead = ","

    try:
        yield write
    finally:
        with suppress(BrokenPipeError):
            opened = "" if lead == "," else lead
            print(f"{opened}\n],\n" + json.dumps(summary.to_json(), indent=2)[2:], flush=True)


@contextmanager
def _table(file: Any) -> Iterator[Write]:
    """A parquet file; its end is written however the block ends, so that it can be read."""
    held: list[Result] = []
    with pq.ParquetWriter(file, SCHEMA) as writer:

        def flush() -> None:
            writer.write_table(pa.Table.from_pylist(held, schema=SCHEMA))
            held.clear()

        def write(result: Result) -> None:
            texts = {key: clean_text(str(result[key])) for key in ("id", "detail")}
            held.append({**result, **texts})
            if len(held) >= _BATCH:
                flush()

        try:
            yield write
        finally:
            flush()
