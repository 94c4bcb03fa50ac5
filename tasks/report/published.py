"""What a run published, from its receipt, checked against the version's files.

Invariant: a receipt that cannot be read counts as no publication, and every fault found is named.
"""

from pydantic import BaseModel, ConfigDict, ValidationError

from infra.storage import Store
from infra.storage.errors import BadPath, CorruptShard, NotFound
from infra.storage.layout import RunLayout
from tasks.publish import CONFIGS, receipt_path
from tasks.report.model import PublishedInfo, StageRow
from tasks.report.stages import whole


class _Receipt(BaseModel):
    model_config = ConfigDict(strict=True)

    name: str
    version: str
    path: str
    accepted: int
    rows: dict[str, int]
    left_out: dict[str, dict[str, int]]


class _File(BaseModel):
    model_config = ConfigDict(strict=True)

    path: str


class _Version(BaseModel):
    model_config = ConfigDict(strict=True)

    files: list[_File]


def read_published(
    store: Store, layout: RunLayout
) -> tuple[StageRow, PublishedInfo | None, list[str]]:
    """The publish stage (accepted traces in, rows of `full` out), its version, its faults."""
    path = receipt_path(layout)
    try:
        receipt = _Receipt.model_validate(store.read_json(path))
    except NotFound:
        return whole("publish", None), None, []
    except (CorruptShard, ValidationError) as error:
        return whole("publish", None), None, [_unreadable(path, error)]
    absent = [name for name in CONFIGS if name not in receipt.rows or name not in receipt.left_out]
    if absent:
        fault = f"publish: {path} does not name the configs {', '.join(absent)}; publish again"
        return whole("publish", None), None, [fault]
    info = PublishedInfo(
        name=receipt.name,
        version=receipt.version,
        path=receipt.path,
        rows={config: receipt.rows[config] for config in CONFIGS},
        left_out=receipt.left_out,
    )
    held_back = info.left_out["full"]
    row = StageRow(
        stage="publish",
        model=None,
        shards_planned=1,
        shards_done=1,
        rows_in=receipt.accepted,
        rows_out=info.rows["full"],
        unscored=sum(held_back.values()),
        reasons=held_back,
    )
    return row, info, _version_faults(store, receipt.path)


def _version_faults(store: Store, folder: str) -> list[str]:
    manifest = f"{folder}/manifest.json"
    try:
        version = _Version.model_validate(store.read_json(manifest))
        present = set(store.list(folder))
    except (BadPath, NotFound):
        return [f"publish: {manifest[:200]} is gone; restore the version or publish again"]
    except (CorruptShard, ValidationError) as error:
        return [_unreadable(manifest, error)]
    gone = [file.path for file in version.files if f"{folder}/{file.path}" not in present]
    if not gone:
        return []
    named = ", ".join(gone[:5])
    return [f"publish: {len(gone)} files of {folder} are gone ({named}); restore them"]


def _unreadable(path: str, error: Exception) -> str:
    if isinstance(error, ValidationError):
        keys = sorted({".".join(map(str, item["loc"])) or "all" for item in error.errors()})
        return f"publish: {path} lacks or has wrong keys ({', '.join(keys[:5])}); publish again"
    return f"publish: {error}"
