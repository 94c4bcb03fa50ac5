"""Quarantine: bad rows as they came, with the reason, beside the shard that they left.

Invariant: a row is never too broken to be set aside: what JSON cannot hold (bytes, NaN, broken
text) is written in a readable form. A stage writes its quarantine before it commits its shard, so
a stage that is done again replaces what the lost attempt wrote.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any

from data_contracts import quarantine as contract
from data_contracts.text import clean_text, table_from_rows
from infra.storage.layout import RunLayout
from infra.storage.shards import commit_table, read_manifest
from infra.storage.store import Store


def quarantine_rows(
    store: Store,
    layout: RunLayout,
    stage: str,
    shard: str,
    rows: Sequence[tuple[dict[str, Any], str, str]],
) -> int:
    """Set aside (row, reason, origin) triples; the number of rows. Nothing is written for none."""
    path = layout.quarantine(stage, shard)
    _drop(store, path)
    if not rows:
        return 0
    records = [
        {"stage": stage, "reason": reason, "row": row_json(row), "origin": origin}
        for row, reason, origin in rows
    ]
    table = table_from_rows(records, contract.SCHEMA)
    commit_table(store, path, table, schema=contract.SCHEMA, producer=f"{stage}:quarantine")
    return len(records)


def row_json(row: dict[str, Any]) -> str:
    """A row as JSON text, whatever it holds; keys keep their order."""
    return json.dumps(_plain(row), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(bytes(value)).decode("ascii")}
    if isinstance(value, dict):
        return {clean_text(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return clean_text(repr(value))


def _drop(store: Store, path: str) -> None:
    manifest = read_manifest(store, path)
    if manifest is not None:
        # The manifest goes first: without it the data do not exist.
        store.delete(f"{path}.json")
        store.delete(manifest.file)
