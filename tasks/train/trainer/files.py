"""Directories that appear whole: weights and checkpoints.

Invariant: what is at the final name was written to the end and is on disk; what a killed trainer
leaves has another name and is removed by the next one.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.storage.local import TEMP_PREFIX, fsync_path
from tasks.train.trainer.ranks import Ranks


@contextmanager
def whole_directory(target: Path, ranks: Ranks) -> Iterator[Path]:
    """A directory that all ranks write into; it gets its name when all are done."""
    temp = target.parent / f"{TEMP_PREFIX}{target.name}"
    if ranks.first:
        shutil.rmtree(temp, ignore_errors=True)
        temp.mkdir(parents=True)
    ranks.meet()
    yield temp
    ranks.meet()
    if ranks.first:
        for file in temp.iterdir():
            fsync_path(file)
        fsync_path(temp)
        temp.rename(target)
        fsync_path(target.parent)
    ranks.meet()
