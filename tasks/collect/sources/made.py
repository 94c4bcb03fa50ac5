"""Tasks from the project's own makers."""

import inspect
from collections.abc import Iterator

from tasks.collect import makers
from tasks.collect.config import MakerSource
from tasks.collect.errors import UnknownName
from tasks.collect.rows import Bad, Raw


def read(source: MakerSource) -> Iterator[Raw | Bad]:
    """`size` tasks of one maker, by index."""
    if source.task_type not in makers.MAKERS:
        raise UnknownName("maker", source.task_type, makers.MAKERS, "maker source")
    make = makers.MAKERS[source.task_type]
    allowed = set(inspect.signature(make).parameters) - {"seed", "index"}
    for knob in source.knobs:
        if knob not in allowed:
            raise UnknownName("knob", knob, allowed, f"maker {source.task_type}")
    for index in range(source.size):
        task = make(source.seed, index, **source.knobs)
        yield Raw(task, f"maker/{source.task_type}")
