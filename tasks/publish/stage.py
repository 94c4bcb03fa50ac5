"""The publish stage: a run's accepted traces become a version of the dataset.

Invariants: contracts and counts are checked before the first byte is written; files, then manifest,
then pointer; publishing the same content again writes nothing and ends at the same version. The
manifest has no run id or time, so two runs of equal content, code and history write the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infra.storage import Store
from infra.storage.layout import RunLayout
from infra.storage.parquet import fingerprint
from tasks.publish.card import render_card
from tasks.publish.config import PublishConfig
from tasks.publish.croissant import render_croissant
from tasks.publish.errors import NothingToPublish
from tasks.publish.files import File, make_file, parquet_files, version_of
from tasks.publish.source import RunSource, read_source
from tasks.publish.splits import CONFIGS, Splits, build_splits
from tasks.publish.versions import head_version, make_current, version_path, write_version


@dataclass(frozen=True, slots=True)
class Published:
    """Where the version lies and what it holds."""

    name: str
    version: str
    path: str
    uri: str
    sequence: int
    rows: dict[str, int]


def receipt_path(layout: RunLayout) -> str:
    """Where a run notes what it published; `tracemill status` and the report read it."""
    return f"{layout.root}/published.json"


def publish(
    store: Store,
    layout: RunLayout,
    config: PublishConfig,
    *,
    annotators: Sequence[str],
    teacher: str,
    config_hash: str,
    code_version: str,
) -> Published:
    """Publish the run and make it the current version."""
    source = read_source(store, layout, allow_unaudited=config.allow_unaudited)
    if not source.traces:
        raise NothingToPublish(layout.run_id, source.accepted, dict(source.held_back))
    # a model that annotates twice has one set of columns
    models = list(dict.fromkeys(annotators))
    splits = build_splits(source, models)
    files = _render(config, splits, source, models, teacher)
    version = version_of(files)
    parent = head_version(store, config.name)
    manifest = {
        "format": 1,
        "name": config.name,
        "version": version,
        # the same content published again keeps its manifest, so it is never its own parent
        "parent_version": parent,
        "config_hash": config_hash,
        "code_version": code_version,
        "configs": {name: _describe(name, splits, files) for name in CONFIGS},
        "files": [
            {"path": file.path, "bytes": len(file.data), "sha256": file.sha256, "rows": file.rows}
            for file in files
        ],
        "counts": {"planned": source.planned, "accepted": source.accepted},
    }
    write_version(store, config.name, version, files, manifest)
    entry = make_current(store, config.name, version)
    rows = {name: splits.tables[name].num_rows for name in CONFIGS}
    folder = version_path(config.name, version)
    receipt = {
        "name": config.name,
        "version": version,
        "path": folder,
        "sequence": entry["sequence"],
        "accepted": source.accepted,
        "rows": rows,
        "left_out": splits.left_out,
    }
    store.write_json(receipt_path(layout), receipt, overwrite=True)
    return Published(config.name, version, folder, store.uri(folder), int(entry["sequence"]), rows)


def _render(
    config: PublishConfig,
    splits: Splits,
    source: RunSource,
    annotators: list[str],
    teacher: str,
) -> list[File]:
    files: list[File] = []
    for name in CONFIGS:
        files += parquet_files(name, splits.tables[name], config.rows_per_file)
    card = render_card(config, splits, files, source, annotators, teacher)
    croissant = render_croissant(config, splits, files)
    return [*files, make_file("README.md", card.encode()), make_file("croissant.json", croissant)]


def _describe(name: str, splits: Splits, files: list[File]) -> dict[str, Any]:
    table = splits.tables[name]
    return {
        "rows": table.num_rows,
        "files": [file.path for file in files if file.config == name],
        "schema_fingerprint": fingerprint(table.schema),
        "left_out": splits.left_out[name],
    }
