"""Task rows from a dataset by hub name or local directory, streamed so that a limit saves work."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tasks.collect.config import DatasetSource
from tasks.collect.errors import SourceNotFound, SourceUnreachable, UnknownName
from tasks.collect.rows import Bad, Raw


def read(source: DatasetSource) -> Iterator[Raw | Bad]:
    """The rows of the split in its own order."""
    import datasets  # seconds to import, and only this source needs it

    where = f"dataset source {source.path!r}"
    name = source.name or None
    try:
        splits = datasets.get_dataset_split_names(source.path, name)
        if source.split not in splits:
            raise UnknownName("split", source.split, splits, where)
        rows = datasets.load_dataset(source.path, name, split=source.split, streaming=True)
    except ConnectionError as error:
        raise _unreachable(source, error) from error
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise SourceNotFound(
            f"{where}, configuration {source.name or 'default'!r}: {error}. Give the name of a "
            "dataset of the hub that can be reached from here, or a local directory."
        ) from error
    return _rows(iter(rows), source)


def _unreachable(source: DatasetSource, error: Exception) -> SourceUnreachable:
    return SourceUnreachable(
        f"dataset source {source.path!r} cannot be read: {error!r}. Check the connection to the "
        "hub and run again, or give a local directory."
    )


def _rows(rows: Iterator[dict[str, object]], source: DatasetSource) -> Iterator[Raw | Bad]:
    name = "/".join(part for part in (source.path, source.name, source.split) if part)
    place = 0
    try:
        for row in islice(rows, source.limit or None):
            place += 1
            yield Raw(dict(row), name, place)
    except Exception as error:  # readers of other formats raise their own types
        if not Path(source.path).exists():
            raise _unreachable(source, error) from error
        origin = f"{name}:{place + 1}"
        yield Bad({}, f"broken_file: nothing readable from here on: {error!r}"[:400], origin)
