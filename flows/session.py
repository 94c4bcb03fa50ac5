"""What the shard stages of a run share while a flow works on it: nodes, upload reader, Dask client.

Invariants: everything that is started here is stopped here; a part is started only when a shard
needs it, so that a run that is complete starts no process at all.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Generic, TypeVar

from prefect.logging import get_run_logger

from data_contracts.ids import model_slug
from flows.nodes import pool_of
from flows.runs import Run
from infra.pool import NodePool
from infra.storage import damaged, discard
from tasks.generate.plan import Shard
from tasks.generate.stage import Generator
from tasks.generate.upload import Reader
from tasks.validate.stage import Validator
from tasks.verify.cluster import dask_client
from tasks.verify.stage import Scorer

PHASES = ("annotators", "teacher")

T = TypeVar("T")


class Once(Generic[T]):
    """A value that is made at the first call, by whichever thread comes first."""

    def __init__(self, make: Callable[[], T]):
        self._make = make
        self._lock = threading.Lock()
        self._made: list[T] = []

    def __call__(self) -> T:
        """The value."""
        with self._lock:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]


class Session:
    """What the stages of one run need; each part is started by the first task that asks for it."""

    def __init__(self, run: Run, stack: ExitStack):
        config, store, layout = run.config, run.store, run.layout
        self.run = run
        self.pool = Once[NodePool](
            lambda: stack.enter_context(pool_of(config.provision, store, layout.root))
        )
        self.reader = Once[Reader](lambda: stack.enter_context(Reader()))
        self.client = Once(lambda: stack.enter_context(dask_client(config.verify)))
        self.validator = Once(lambda: Validator(store, layout, config.validation, self.pool()))
        self.scorer = Once(
            lambda: Scorer(
                store,
                layout,
                config.verify,
                self.client(),
                allow_unaudited=config.publish.allow_unaudited,
            )
        )
        self.generators = {phase: Once(partial(self._generator, phase)) for phase in PHASES}

    def _generator(self, phase: str) -> Generator:
        run = self.run
        return Generator(run.store, run.layout, run.config.uses(phase), self.pool(), self.reader())


@contextmanager
def session(run: Run) -> Iterator[Session]:
    """A session; the processes that it started end with it."""
    with ExitStack() as stack:
        yield Session(run, stack)


def committed(run: Run, stage: str, shard: Shard) -> bool:
    """Whether a stage (generate, validate, verify) has committed a shard, and it is still sound.

    A shard whose data were lost or changed since is discarded with what was made of it, so that its
    stage and those behind it make it again.
    """
    slug = model_slug(shard.model)
    stages = {
        "generate": run.layout.traces,
        "validate": run.layout.verdicts,
        "verify": run.layout.rewards,
    }
    names = list(stages)
    path, *behind = [stages[name](slug, shard.shard_id) for name in names[names.index(stage) :]]
    if not run.store.exists(f"{path}.json"):
        return False
    fault = damaged(run.store, path)
    if fault:
        get_run_logger().warning("%s is made again: %s", path, fault)
        for made in (*reversed(behind), path):
            discard(run.store, made)
    return not fault
