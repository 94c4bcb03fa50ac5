"""A small swarm in this process: strangers who make rollouts, honest or not, and a node of ours."""

import hashlib
import json
import shutil
import tempfile
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file, save_file

from data_contracts import rollouts as contract
from data_contracts.text import table_from_rows
from infra.inference.prompts import ChatTokenizer
from infra.models import registry
from infra.pool import Job, JobResult, Upload
from infra.pool.errors import JobFailed
from infra.pool.ledger import Ledger, Slash
from infra.storage import RunLayout, Store
from infra.storage.parquet import parquet_bytes
from tasks.generate.config import SamplingConfig
from tasks.train.objective.config import LengthConfig, ObjectiveConfig
from tasks.train.rollouts.check import RolloutCheck
from tasks.train.rollouts.config import TrustConfig
from tasks.train.rollouts.intake import Intake, Trusted
from tasks.train.rollouts.job import Broadcast, Group, RolloutJob, rollout_job
from tasks.train.rollouts.policy import Policies
from tasks.train.rollouts.standing import Standing
from tasks.train.rollouts.uploads import UploadReader
from tasks.train.rollouts.work import FILE, RolloutWork, signed
from toploc.signing import SigningKey

BASE = "tracemill/nano-s"
MODEL = "policy"
LAYOUT = RunLayout("r")
WORDS = ("lamp", "stone", "river", "window", "cloud", "table")
SAMPLING = SamplingConfig(max_tokens=48)
TOKENIZER = ChatTokenizer(registry.materialise(BASE), BASE)
VOCABULARY = json.loads((registry.materialise(BASE) / "config.json").read_text())["vocab_size"]
VERSIONS = 4
POLICIES = Policies()
"""Shared by all nodes here: they are one process."""


def task_id(place: int) -> str:
    return f"{place:032x}"


ANSWERS = {
    task_id(place): json.dumps({"ground_truth": word[::-1]}) for place, word in enumerate(WORDS)
}


def changed_weights(target: Path, number: int, scale: float = 0.02) -> Path:
    """A policy version: the base with every weight moved a little, more with every number."""
    shutil.copytree(registry.materialise(BASE), target, ignore=shutil.ignore_patterns("README.md"))
    weights = load_file(target / "model.safetensors")
    drawn = torch.Generator().manual_seed(7)
    for name, value in weights.items():
        noise = torch.randn(value.shape, generator=drawn)
        weights[name] = (value.float() * (1 + scale * number * noise)).to(value.dtype)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    return target


def make_job(
    step: int = 2,
    number: int = 0,
    least: int = 1,
    most: int = 1,
    size: int = 4,
    temperature: float = 1.0,
    task_type: str = "reverse_text",
) -> RolloutJob:
    """A job of two prompts; jobs whose numbers differ by 3 have the same ones."""
    groups = []
    for at in range(2):
        place = (2 * number + at) % len(WORDS)
        text = f"Spell this word backward (example: sun -> nus): {WORDS[place]}"
        groups.append(
            Group(
                group=2 * number + at,
                task_id=task_id(place),
                problem_id=WORDS[place],
                task_type=task_type,
                prompt=text,
                prompt_ids=TOKENIZER.render([{"role": "user", "content": text}])[0],
                seeds=[10_000 * step + 100 * number + 10 * at + s for s in range(size)],
            )
        )
    return RolloutJob(
        run_id="r",
        step=step,
        number=number,
        model=MODEL,
        least_version=least,
        most_version=most,
        sampling=SAMPLING.model_copy(update={"temperature": temperature}),
        batch_groups=2,
        groups=groups,
    )


class Node:
    """A node with a key of its own; `lie(rows, payload, key)` changes what it uploads."""

    def __init__(self, key: int, lie=None):
        self.key = SigningKey(bytes([key]) * 32)
        self.lie = lie
        self._works = {
            "rollouts": RolloutWork(self.key, POLICIES),
            "check_rollouts": RolloutCheck(POLICIES),
        }

    def do(self, job: Job, store: Store) -> JobResult:
        payload = json.loads(json.dumps(job.payload))
        if job.kind == "check_rollouts":
            output = self._works[job.kind](payload, None)
            return JobResult(job.job_id, self.key.node_id, output, 1.0)
        with tempfile.TemporaryDirectory() as out:
            output = self._works[job.kind](payload, None, Path(out))
            data = (Path(out) / FILE).read_bytes()
        if self.lie:
            data = self.lie(upload_rows(data), payload, self.key)
            data = data if isinstance(data, bytes) else packed(data)
        path = f"uploads/{self.key.node_id[:8]}-{job.job_id}.parquet"
        store.write_bytes(path, data, overwrite=True)
        file = Upload(path, hashlib.sha256(data).hexdigest(), len(data))
        return JobResult(job.job_id, self.key.node_id, output, 1.0, (file,))


class Pool:
    """Strangers take rollouts in turn; a node of ours checks."""

    def __init__(self, store: Store, strangers: list[Node]):
        self._store = store
        self.strangers = strangers
        self.ours = Node(255)
        self.checks: list[Job] = []
        self.distrusted: list[str] = []
        self.failing = 0
        """Checks that fail before one does not."""

    def submit(self, job: Job) -> Future:
        future: Future[JobResult] = Future()
        if job.kind == "check_rollouts":
            self.checks.append(job)
            if self.failing:
                self.failing -= 1
                future.set_exception(JobFailed(job.job_id, "its nodes died"))
                return future
            future.set_result(self.ours.do(job, self._store))
        else:
            future.set_result(self.strangers[0].do(job, self._store))
            self.strangers.append(self.strangers.pop(0))
        return future

    def distrust(self, node_id: str, reason: str, evidence: dict) -> None:
        self.distrusted.append(node_id)
        # As the pool's service books it.
        Ledger(self._store).append(Slash(node_id=node_id, reason=reason, evidence=evidence))


def upload_rows(data: bytes) -> list[dict]:
    return pq.read_table(pa.BufferReader(data)).to_pylist()


def packed(rows: list[dict], schema: pa.Schema = contract.SCHEMA) -> bytes:
    return parquet_bytes(table_from_rows(rows, schema))


def resigned(row: dict, key: SigningKey, **changes) -> dict:
    """A row with other claims, signed for them."""
    return signed(row | changes, key)


class Run:
    """One run's trusted side, and what it asks strangers for."""

    def __init__(
        self,
        root: Path,
        broadcast: Broadcast,
        strangers: list[Node],
        reader: UploadReader,
        config: TrustConfig | None = None,
        final=lambda job: False,
    ):
        self.store = Store(str(root))
        self.pool = Pool(self.store, strangers)
        self.broadcast = broadcast
        self.intake = Intake(
            self.store,
            LAYOUT,
            self.pool,
            Standing(self.store, "r"),
            reader,
            config or TrustConfig(calibrated_by=BASE),
            Trusted(
                answers=ANSWERS,
                tokenizer=TOKENIZER,
                lengths=LengthConfig(),
                objective=ObjectiveConfig(),
                broadcast=broadcast,
                folder=lambda job: f"{LAYOUT.root}/rl/rollouts/step_{job.step}",
                vocabulary=VOCABULARY,
                final=final,
            ),
        )
        self.attempts = 0

    def made(self, job: RolloutJob) -> JobResult:
        """What the next stranger makes of a job."""
        self.attempts += 1
        return self.pool.submit(rollout_job(job, self.broadcast, self.attempts)).result()

    def take(self, job: RolloutJob):
        return self.intake.take(job, self.made(job))
