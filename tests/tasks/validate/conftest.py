"""A small planned run, and two strangers who generate for it, one of whom turns into a liar."""

import hashlib
from concurrent.futures import Future
from dataclasses import replace

import pytest

from data_contracts import collect as tasks_contract
from data_contracts.ids import task_id
from data_contracts.text import table_from_rows
from infra.inference import load_engine
from infra.pool import JobResult
from infra.storage import RunLayout, Store, commit_table
from tasks.generate.config import ModelUse, SamplingConfig
from tasks.generate.plan import plan_tasks
from tasks.generate.stage import Generator, commit_plan, read_plan
from tasks.generate.upload import make_reader
from tasks.provision.worker import answer, works
from tasks.validate.audit import SECRET
from toploc.signing import SigningKey

MODEL = "tracemill/nano-s"
USE = ModelUse(
    model=MODEL, samples=6, batch_size=2, sampling=SamplingConfig(max_tokens=12, temperature=1.0)
)
LAYOUT = RunLayout("r")
HONEST_BATCHES = 3


@pytest.fixture(scope="session")
def nano():
    loaded = load_engine(MODEL)
    yield loaded
    loaded.close()


@pytest.fixture(scope="session")
def reader():
    with make_reader() as started:
        yield started


@pytest.fixture
def planned(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    secret = tmp_path / "config" / "tracemill" / SECRET
    secret.parent.mkdir(parents=True)
    secret.write_bytes(hashlib.sha256(b"audit").digest())
    secret.chmod(0o600)
    store = Store(str(tmp_path / "data"))
    rows = []
    for word in ("lamp", "stone", "river", "window"):
        prompt = [{"role": "user", "content": f"Spell this word backward: {word}"}]
        info = {"ground_truth": word[::-1]}
        rows.append(
            {
                "task_id": task_id("reverse_text", prompt, info),
                "problem_id": word,
                "source": "test",
                "task_type": "reverse_text",
                "prompt": prompt,
                "verification_info": f'{{"ground_truth":"{word[::-1]}"}}',
                "metadata": "{}",
                "gold": word[::-1],
                "binary": False,
            }
        )
    table = table_from_rows(rows, tasks_contract.SCHEMA)
    commit_table(store, LAYOUT.tasks, table, schema=tasks_contract.SCHEMA, producer="test")
    commit_plan(store, LAYOUT, "annotators", plan_tasks(table), [USE], 1, {})
    return store


class Node:
    """A node in this process with a key of its own; a liar samples with other seeds, later on.

    Its clock stands still, so that the same run commits the same bytes and has the same audits.
    """

    def __init__(self, engine, key: int, lies: bool):
        self.key = SigningKey(bytes([key]) * 32)
        self._engine, self._lies, self._batches = engine, lies, 0

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def generate(self, batch, params, sink):
        self._batches += 1
        if self._lies and self._batches > HONEST_BATCHES:
            batch = [replace(request, seed=request.seed ^ 1) for request in batch]
        return [replace(done, seconds=1.0) for done in self._engine.generate(batch, params, sink)]

    def do(self, job) -> JobResult:
        message = {"job_id": job.job_id, "kind": job.kind, "payload": job.payload}
        reply = answer(message, works(self.key), lambda model: self)
        assert "error" not in reply, reply
        return JobResult(job.job_id, self.key.node_id, reply["output"], reply["seconds"])


class Pool:
    """Two strangers generate in turn, a node of ours checks."""

    def __init__(self, engine):
        self._engine = engine
        self.liar = Node(engine, 1, lies=True)
        self.strangers = [self.liar, Node(engine, 2, lies=False)]
        self.ours = Node(engine, 3, lies=False)
        self.distrusted: list[str] = []

    def submit(self, job):
        future: Future[JobResult] = Future()
        node = self.ours
        if job.kind == "generate":
            node = self.strangers[0]
            self.strangers.reverse()
        future.set_result(node.do(job))
        return future

    def distrust(self, node_id):
        self.distrusted.append(node_id)
        self.strangers = [
            Node(self._engine, 4 + len(self.distrusted), lies=False)
            if node.key.node_id == node_id
            else node
            for node in self.strangers
        ]


@pytest.fixture
def pool(nano):
    return Pool(nano)


@pytest.fixture
def shards(planned):
    return read_plan(planned, LAYOUT, "annotators")


@pytest.fixture
def generator(planned, pool, reader):
    return Generator(planned, LAYOUT, [USE], pool, reader)
