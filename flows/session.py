"""What the shard stages of a run share while a flow works on it: nodes, upload reader, Dask client.

Invariants: everything that is started here is stopped here; a part is started only when a shard
needs it, so that a run that is complete starts no process at all.
"""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager

from data_contracts.ids import model_slug
from flows.runs import Run
from infra.pool import NodePool
from infra.storage import read_manifest
from tasks.generate.plan import Shard
from tasks.generate.stage import Generator
from tasks.generate.upload import make_reader
from tasks.provision.local import local_pool
from tasks.validate.stage import Validator
from tasks.verify.cluster import dask_client
from tasks.verify.stage import Scorer

PHASES = ("annotators", "teacher")


class Session:
    """Starts on demand what the stages of one run need."""

    def __init__(self, run: Run, stack: ExitStack):
        self.run = run
        self._stack = stack
        self._pool: NodePool | None = None
        self._reader: Executor | None = None
        self._generators: dict[str, Generator] = {}
        self._validator: Validator | None = None
        self._scorer: Scorer | None = None

    def pool(self) -> NodePool:
        """The nodes."""
        if self._pool is None:
            self._pool = self._stack.enter_context(local_pool(self.run.config.provision))
        return self._pool

    def reader(self) -> Executor:
        """The child process that opens uploads."""
        if self._reader is None:
            self._reader = self._stack.enter_context(make_reader())
        return self._reader

    def generator(self, phase: str) -> Generator:
        """The generate stage of a phase."""
        if phase not in self._generators:
            run = self.run
            self._generators[phase] = Generator(
                run.store, run.layout, run.config.uses(phase), self.pool(), self.reader()
            )
        return self._generators[phase]

    def validator(self) -> Validator:
        """The validate stage."""
        if self._validator is None:
            run = self.run
            self._validator = Validator(run.store, run.layout, run.config.validation, self.pool())
        return self._validator

    def scorer(self) -> Scorer:
        """The verify stage."""
        if self._scorer is None:
            run = self.run
            client = self._stack.enter_context(dask_client(run.config.verify))
            self._scorer = Scorer(run.store, run.layout, run.config.verify, client)
        return self._scorer


@contextmanager
def session(run: Run) -> Iterator[Session]:
    """A session; the processes that it started end with it."""
    with ExitStack() as stack:
        yield Session(run, stack)


def committed(run: Run, stage: str, shard: Shard) -> bool:
    """Whether a stage (generate, validate, verify) has committed a shard."""
    slug = model_slug(shard.model)
    path = {
        "generate": run.layout.traces,
        "validate": run.layout.verdicts,
        "verify": run.layout.rewards,
    }[stage](slug, shard.shard_id)
    return read_manifest(run.store, path) is not None
