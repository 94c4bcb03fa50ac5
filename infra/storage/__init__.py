"""Storage: objects on any root, shards committed once, quarantine, reconciliation."""

from infra.storage.layout import RunLayout
from infra.storage.parquet import parquet_bytes
from infra.storage.quarantine import quarantine_rows
from infra.storage.reconcile import StageCount, check
from infra.storage.shards import (
    Manifest,
    commit_table,
    damaged,
    discard,
    list_committed,
    read_manifest,
    read_table,
)
from infra.storage.store import Store

__all__ = [
    "Manifest",
    "RunLayout",
    "StageCount",
    "Store",
    "check",
    "commit_table",
    "damaged",
    "discard",
    "list_committed",
    "parquet_bytes",
    "quarantine_rows",
    "read_manifest",
    "read_table",
]
