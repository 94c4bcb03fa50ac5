"""Rows of a file that is to be verified, one by one.

Invariant: whatever a line or a row holds, it comes out as one `Row`, in the order of the file; only
a file that cannot be read at all is an error. Nothing is held but the row at hand.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from flows.errors import BadConfig

NEEDED = ("task_type", "completion", "verification_info")
_BATCH = 256


@dataclass(frozen=True)
class Row:
    """One row: what its result is called, what is scored, and what is wrong with its form."""

    id: str | int
    fields: dict[str, Any]
    fault: str = ""


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a .jsonl or .parquet file; `BadConfig` where it cannot be read as such."""
    if not path.is_file():
        raise BadConfig(f"file {str(path)!r} does not exist; give a .jsonl or .parquet file, or -")
    if path.suffix not in (".jsonl", ".parquet"):
        raise BadConfig(f"file {str(path)!r}: the name ends in neither .jsonl nor .parquet")
    return _parquet(path) if path.suffix == ".parquet" else _json_lines(path)


def _parquet(path: Path) -> Iterator[Row]:
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            missing = [key for key in NEEDED if key not in names]
            if missing:
                raise BadConfig(
                    f"file {str(path)!r} has no column {', '.join(missing)}; "
                    f"it needs {', '.join(NEEDED)} and may have id; found {', '.join(names)[:300]}"
                )
            columns = [*NEEDED, *(["id"] if "id" in names else [])]
            number = 0
            for batch in file.iter_batches(_BATCH, columns=columns):
                for fields in batch.to_pylist():
                    number += 1
                    yield _row(number, f"row {number}", fields)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadConfig(
            f"file {str(path)!r} is not readable as parquet: {error}. Write it again."
        ) from error


def _json_lines(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                fields = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield Row(number, {}, f"line {number} is not JSON: {error}")
                continue
            if isinstance(fields, dict):
                yield _row(number, f"line {number}", fields)
            else:
                yield Row(number, {}, f"line {number} is not a JSON object")


def _row(number: int, where: str, fields: dict[str, Any]) -> Row:
    given = fields.get("id")
    name = number if given is None else given if isinstance(given, int | str) else str(given)
    missing = [key for key in NEEDED if key not in fields]
    if missing:
        needs = f"{where} has no {', '.join(missing)}; a row needs {', '.join(NEEDED)}"
        return Row(name, {}, needs)
    return Row(name, {key: fields[key] for key in NEEDED})
