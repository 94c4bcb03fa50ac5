"""`tracemill verify`: score the rows of a file, one JSON line per row, and sum up."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import track

from flows.errors import BadConfig
from verifiers import score_many

NEEDED = ("task_type", "completion", "verification_info")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSONL or parquet file; a row that lacks a key is an error that names it."""
    if not path.is_file():
        raise BadConfig(f"file {str(path)!r} does not exist; give a .jsonl or .parquet file")
    if path.suffix == ".parquet":
        try:
            rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise BadConfig(f"file {str(path)!r} is not readable as parquet: {error}") from error
    elif path.suffix == ".jsonl":
        rows = list(_json_lines(path))
    else:
        raise BadConfig(f"file {str(path)!r}: the name ends in neither .jsonl nor .parquet")
    for number, row in enumerate(rows, 1):
        missing = [key for key in NEEDED if key not in row]
        if missing:
            raise BadConfig(f"{path}, row {number}: no {missing}; each row needs {list(NEEDED)}")
    return rows


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BadConfig(f"{path}, line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise BadConfig(f"{path}, line {number} is not a JSON object")
            yield row


def verify_file(path: Path, output: Path | None, workers: int, err: Console) -> int:
    """Score a file; results go to `output` or stdout, the summary to stderr. Always 0 when done."""
    rows = read_rows(path)
    if output and output.exists() and output.samefile(path):
        raise BadConfig(f"output {str(output)!r} is the input itself; choose another -o")
    tally: Counter[tuple[str, str]] = Counter()
    solved: Counter[str] = Counter()
    with ExitStack() as stack:
        sink = stack.enter_context(_opened(output)) if output else sys.stdout
        scores = score_many(rows, workers=workers or None)
        numbered = track(
            enumerate(zip(rows, scores, strict=True), 1),
            "verify",
            total=len(rows),
            console=err,
            disable=not err.is_terminal,
        )
        for number, (row, score) in numbered:
            result = {
                "id": _plain_id(row.get("id", number)),
                "score": score.score,
                "status": score.status,
                "verifier": score.verifier,
                "detail": score.detail,
                "seconds": round(score.seconds, 4),
            }
            print(json.dumps(result, ensure_ascii=True), file=sink, flush=True)
            tally[(str(row["task_type"]), score.status)] += 1
            solved[str(row["task_type"])] += score.score == 1.0
    for (task_type, status), count in sorted(tally.items()):
        err.print(f"{task_type}: {status} {count}", highlight=False, markup=False)
    err.print(f"{len(rows)} rows, {sum(solved.values())} with score 1", highlight=False)
    return 0


def _opened(output: Path) -> TextIO:
    try:
        return output.open("w", encoding="utf-8")
    except OSError as error:
        raise BadConfig(f"output {str(output)!r} cannot be written: {error.strerror}") from error


def _plain_id(value: object) -> str | int:
    """A row's id as JSON can hold it."""
    return value if isinstance(value, int | str) else str(value)
