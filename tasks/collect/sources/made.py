"""Tasks from the project's own makers."""

import inspect
from collections.abc import Iterator

from tasks.collect import makers
from tasks.collect.config import MakerSource
from tasks.collect.errors import UnknownName
from tasks.collect.rows import Bad, Raw
from tasks.collect.sources.worked import drawn, with_examples


def read(source: MakerSource) -> Iterator[Raw | Bad]:
    """`size` tasks of one maker, by index."""
    if source.task_type not in makers.MAKERS:
        raise UnknownName("maker", source.task_type, makers.MAKERS, "maker source")
    make = makers.MAKERS[source.task_type]
    allowed = set(inspect.signature(make).parameters) - {"seed", "index"}
    for knob in source.knobs:
        if knob not in allowed:
            raise UnknownName("knob", knob, allowed, f"maker {source.task_type}")
    origin = f"maker/{source.task_type}"
    count = drawn(source.size, source.examples)
    rows = (Raw(make(source.seed, index, **source.knobs), origin) for index in range(count))
    return with_examples(rows, source.size, source.examples) if source.examples else rows
