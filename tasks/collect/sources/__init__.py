"""Where tasks come from: one module per kind, each an iterator of `Raw` and `Bad` rows."""

from collections.abc import Iterator

from tasks.collect.config import (
    DatasetSource,
    FileSource,
    HumanEvalSource,
    MakerSource,
    ReasoningGymSource,
    Source,
)
from tasks.collect.rows import Bad, Raw
from tasks.collect.sources import files, generators, hub, human_eval, made


def read(source: Source) -> Iterator[Raw | Bad]:
    """All rows of a source, in its own order; only a fault of the whole source raises."""
    match source:
        case ReasoningGymSource():
            return generators.read(source)
        case FileSource():
            return files.read(source)
        case DatasetSource():
            return hub.read(source)
        case HumanEvalSource():
            return human_eval.read(source)
        case MakerSource():
            return made.read(source)
