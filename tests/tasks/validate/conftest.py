"""A small planned run, and two strangers who generate for it, one of whom turns into a liar.

The parts that several files of tests need lie beside them and are imported by name.
"""

import hashlib
import sys
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from infra.pool import JobResult, Upload
from infra.storage import RunLayout, Store
from tasks.generate.config import ModelUse, SamplingConfig
from tasks.generate.stage import Generator, read_plan
from tasks.provision.worker import answer, works
from tasks.validate.audit import SECRET
from toploc.signing import SigningKey

sys.path.insert(0, str(Path(__file__).parent))

MODEL = "tracemill/nano-s"
USE = ModelUse(
    model=MODEL, samples=6, batch_size=2, sampling=SamplingConfig(max_tokens=12, temperature=1.0)
)
LAYOUT = RunLayout("r")
HONEST_BATCHES = 3


@pytest.fixture
def planned(tmp_path, monkeypatch, plan_words) -> Store:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    secret = tmp_path / "config" / "tracemill" / SECRET
    secret.parent.mkdir(parents=True)
    secret.write_bytes(hashlib.sha256(b"audit").digest())
    secret.chmod(0o600)
    store = Store(str(tmp_path / "data"))
    plan_words(store, LAYOUT, USE)
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

    def do(self, job, store: Store) -> JobResult:
        """The result; its files lie where the pool's service would put them."""
        place = f"runs/r/uploads/{self.key.node_id}"
        out = store.local_path(place)
        out.mkdir(parents=True, exist_ok=True)
        message = {
            "job_id": job.job_id, "kind": job.kind, "payload": job.payload, "out": str(out),
        }  # fmt: skip
        reply = answer(message, works(self.key), lambda model: self)
        assert "error" not in reply, reply
        files = tuple(
            Upload(f"{place}/{name}", hashlib.sha256(data).hexdigest(), len(data))
            for name in reply["files"]
            for data in [(out / name).read_bytes()]
        )
        return JobResult(job.job_id, self.key.node_id, reply["output"], reply["seconds"], files)


class Pool:
    """Two strangers generate in turn, a node of ours checks."""

    def __init__(self, engine, store: Store):
        self._engine, self._store = engine, store
        self.liar = Node(engine, 1, lies=True)
        self.strangers = [self.liar, Node(engine, 2, lies=False)]
        self.ours = Node(engine, 3, lies=False)
        self.distrusted: list[str] = []
        self.charges: list[tuple[str, dict]] = []

    def submit(self, job, check=None):
        future: Future[JobResult] = Future()
        node = self.ours
        if job.kind == "generate":
            node = self.strangers[0]
            self.strangers.reverse()
        result = node.do(job, self._store)
        if check is not None:
            check(result)
        future.set_result(result)
        return future

    def distrust(self, node_id, reason, evidence):
        self.distrusted.append(node_id)
        self.charges.append((reason, evidence))
        self.strangers = [
            Node(self._engine, 4 + len(self.distrusted), lies=False)
            if node.key.node_id == node_id
            else node
            for node in self.strangers
        ]


@pytest.fixture
def pool(nano, planned):
    return Pool(nano, planned)


@pytest.fixture
def shards(planned):
    return read_plan(planned, LAYOUT, "annotators")


@pytest.fixture
def generator(planned, pool, reader):
    return Generator(planned, LAYOUT, [USE], pool, reader)


@pytest.fixture
def service(planned, tmp_path):
    """The validator service over the run's storage; it may be killed and started again."""
    from service_process import Service

    made = Service(planned.root, tmp_path / "state", tmp_path / "service.log")
    yield made.start()
    if made.process.poll() is None:
        made.stop()
