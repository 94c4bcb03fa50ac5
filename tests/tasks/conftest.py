"""A small committed run for the stages behind verify, its tables as the stages write them."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from data_contracts import collect, generate, ids, plan, validate, verify
from data_contracts.text import table_from_rows
from infra.inference import load_engine
from infra.storage import RunLayout, Store, commit_table
from tasks.annotate import AnnotateConfig, annotate
from tasks.generate.config import ModelUse
from tasks.generate.plan import plan_tasks
from tasks.generate.stage import commit_plan
from tasks.generate.upload import Reader
from tasks.publish import PublishConfig, Published, publish

SAMPLING = {
    "temperature": 0.7, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "max_tokens": 64, "stop": [],
}  # fmt: skip
Score = Callable[[dict[str, Any], dict[str, Any]], float | None]
KINDS = {"reasoning_gym": True, "reverse_text": False, "verifiable_math": True}


def draw(*key: Any) -> float:
    """A number in [0, 1) that depends on the key alone."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


@dataclass
class Run:
    """A run whose stages are committed one by one."""

    ANNOTATORS: ClassVar[tuple[str, ...]] = ("tracemill/nano-s", "tracemill/nano-m")
    TEACHER: ClassVar[str] = "org/teacher"

    store: Store
    layout: RunLayout
    tasks: list[dict[str, Any]] = field(default_factory=list)
    shards: dict[str, list[tuple[str, str, list[dict[str, Any]]]]] = field(default_factory=dict)

    def collect(self, per_kind: int = 4, text: str = "What is {n} + 1?") -> "Run":
        for kind, binary in KINDS.items():
            for n in range(per_kind):
                prompt = [{"role": "user", "content": text.format(n=n)}]
                info = {"ground_truth": str(n + 1)}
                self.tasks.append(
                    {
                        "task_id": ids.task_id(kind, prompt, info),
                        "problem_id": f"{kind}-{n}",
                        "source": f"made/{kind}",
                        "task_type": kind,
                        "prompt": prompt,
                        "verification_info": json.dumps(info),
                        "metadata": "{}",
                        "gold": None,
                        "binary": binary,
                    }
                )
        info = {
            "counts": {
                "rows_in": len(self.tasks) + 1,
                "rows_out": len(self.tasks),
                "quarantined": 1,
                "reasons": {"duplicate": 1},
            }
        }
        self._commit(self.layout.tasks, self.tasks, collect.SCHEMA, info)
        return self

    def plan(
        self, phase: str, models: tuple[str, ...], samples: int = 4, shard_size: int = 20
    ) -> "Run":
        rows: list[dict[str, Any]] = []
        self.shards[phase] = []
        for model in models:
            traces = [
                {"task_id": task["task_id"], "model": model, "sample_index": index}
                for task in self.tasks
                for index in range(samples)
            ]
            for trace in traces:
                trace["trace_id"] = ids.trace_id(
                    task_id=trace["task_id"], model=model, model_revision="rev",
                    sampling=SAMPLING, run_seed=1, sample_index=trace["sample_index"],
                )  # fmt: skip
            for start in range(0, len(traces), shard_size):
                part = traces[start : start + shard_size]
                trace_ids = [trace["trace_id"] for trace in part]
                shard = ids.shard_id(model=model, trace_ids=trace_ids, batch_plan=[0] * len(part))
                self.shards[phase].append((model, shard, part))
                rows += [
                    trace
                    | {
                        "shard_id": shard,
                        "batch": 0,
                        "position": position,
                        "seed": ids.trace_seed(trace["trace_id"]),
                    }
                    for position, trace in enumerate(part)
                ]
        self._commit(self.layout.plan(phase), rows, plan.SCHEMA, {})
        return self

    def generate(self, phase: str, skip: int = 0, completion: str = "It is {draw}.") -> "Run":
        for model, shard, traces in self.shards[phase][skip:]:
            rows = [
                {
                    "trace_id": trace["trace_id"],
                    "task_id": trace["task_id"],
                    "model": model,
                    "model_revision": "rev",
                    "sample_index": trace["sample_index"],
                    "seed": ids.trace_seed(trace["trace_id"]),
                    "sampling": ids.canonical_json(SAMPLING),
                    "prompt_ids": [1, 2],
                    "output_ids": [3],
                    "logprobs": [-0.5],
                    "completion": completion.replace("{draw}", f"{draw(trace['trace_id']):.3f}"),
                    "status": "ok",
                    "finish_reason": "stop",
                    "error": None,
                    "proofs": bytes(258),
                    "stage_proofs": None,
                    "transcript_hash": None,
                    "signature": None,
                    "engine": "transformers",
                    "node_id": "secret-node",
                    "group_id": None,
                    "seconds": 1.5,
                }
                for trace in traces
            ]
            path = self.layout.traces(ids.model_slug(model), shard)
            self._commit(path, rows, generate.SCHEMA, _info(rows, "status"))
        return self

    def validate(
        self, phase: str, skip: int = 0, reject: float = 0.1, unaudited: bool = False
    ) -> "Run":
        yes = "accepted_unaudited" if unaudited else "accepted"
        for model, shard, traces in self.shards[phase][skip:]:
            rows = []
            for trace in traces:
                bad = draw("reject", trace["trace_id"]) < reject
                rows.append(
                    {
                        "trace_id": trace["trace_id"],
                        "shard_id": shard,
                        "verdict": "rejected" if bad else yes,
                        "reasons": ["proof_missing: 0 of 1"] if bad else [],
                        "figures": json.dumps({"exp_mismatches": 50 if bad else 1, "proofs": 1}),
                        "validator": "toploc@1 default",
                    }
                )
            path = self.layout.verdicts(ids.model_slug(model), shard)
            refused = sum(row["verdict"] == "rejected" for row in rows)
            info = {
                "counts": {
                    "rows_in": len(rows),
                    "rows_out": len(rows) - refused,
                    "quarantined": refused,
                    "reasons": {"proof_missing": refused},
                }
            }
            self._commit(path, rows, validate.SCHEMA, info)
        return self

    def verify(
        self, phase: str, score: Score | None = None, reject: float = 0.1, skip: int = 0
    ) -> "Run":
        by_id = {task["task_id"]: task for task in self.tasks}
        for model, shard, traces in self.shards[phase][skip:]:
            rows = []
            for trace in traces:
                if draw("reject", trace["trace_id"]) < reject:
                    continue
                task = by_id[trace["task_id"]]
                value = (score or usual_score)(task, trace)
                rows.append(
                    {
                        "trace_id": trace["trace_id"],
                        "task_id": trace["task_id"],
                        "model": model,
                        "status": "verifier_error" if value is None else "ok",
                        "verifier": f"{task['task_type']}@1",
                        "verifier_config": "{}",
                        "detail": "",
                        "score": value,
                        "binary": task["binary"],
                        "seconds": 0.25,
                    }
                )
            path = self.layout.rewards(ids.model_slug(model), shard)
            self._commit(path, rows, verify.SCHEMA, _info(rows, "status"))
        return self

    def stages(self, phase: str, models: tuple[str, ...], **options: Any) -> "Run":
        """All stages of a phase."""
        return self.plan(phase, models, **options).generate(phase).validate(phase).verify(phase)

    def accepted(self, phase: str) -> int:
        """Traces that `validate` accepts with its usual share of rejections."""
        return sum(
            draw("reject", trace["trace_id"]) >= 0.1
            for _, _, traces in self.shards[phase]
            for trace in traces
        )

    def _commit(self, path: str, rows: list[dict[str, Any]], schema: Any, info: Any) -> None:
        table = table_from_rows(rows, schema)
        commit_table(self.store, path, table, schema=schema, producer="test", info=info)


def _info(rows: list[dict[str, Any]], column: str) -> dict[str, Any]:
    count = {"rows_in": len(rows), "rows_out": len(rows), "quarantined": 0, "reasons": {}}
    return {"counts": count, "status": dict(Counter(row[column] for row in rows))}


def usual_score(task: dict[str, Any], trace: dict[str, Any]) -> float | None:
    """Right, wrong and unscored answers of every model and kind."""
    value = draw("score", trace["trace_id"])
    if value > 0.9:
        return None
    return float(value > 0.5) if task["binary"] else round(value, 3)


@pytest.fixture
def new_run(tmp_path) -> Callable[..., Run]:
    """Make an empty run, by default in memory."""

    def make(run_id: str = "run-1", root: str | None = None) -> Run:
        return Run(Store(root or f"memory://{tmp_path.as_posix().strip('/')}"), RunLayout(run_id))

    return make


def rate_and_publish_run(run: Run, **options: Any) -> Published:
    """Annotate and publish a run."""
    annotate(run.store, run.layout, AnnotateConfig(), producer="test")
    return publish(
        run.store,
        run.layout,
        PublishConfig(name="made", **options),
        annotators=run.ANNOTATORS,
        teacher=run.TEACHER,
        config_hash="c" * 32,
        code_version="0.1.0",
    )


@pytest.fixture(scope="session")
def rate_and_publish() -> Callable[..., Published]:
    """Annotate and publish a run."""
    return rate_and_publish_run


def up_to_verify(run: Run) -> Run:
    """Annotators and teacher done up to verify; difficulty and publication not yet."""
    run.collect().stages("annotators", Run.ANNOTATORS)
    return run.stages("teacher", (Run.TEACHER,), samples=1, shard_size=5)


@pytest.fixture
def rated_run(new_run) -> Run:
    """A run of its own with everything before annotate."""
    return up_to_verify(new_run())


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> tuple[Run, Published]:
    """One published run on disk that all tests read and none changes."""
    run = up_to_verify(Run(Store(str(tmp_path_factory.mktemp("run"))), RunLayout("run-1")))
    return run, rate_and_publish_run(run, rows_per_file=50)


@pytest.fixture(scope="session", autouse=True)
def _calibrated(calibrated_here):
    """Stages validate as on a calibrated machine."""


@pytest.fixture(scope="session")
def nano():
    """The smallest embedded model."""
    loaded = load_engine("tracemill/nano-s")
    yield loaded
    loaded.close()


@pytest.fixture(scope="session")
def reader():
    """The child that parses uploads."""
    with Reader() as started:
        yield started


@pytest.fixture(scope="session")
def plan_words() -> Callable[[Store, RunLayout, ModelUse], None]:
    """Commit four tasks, words to spell backward, and the plan of one annotator for them."""

    def make(store: Store, layout: RunLayout, use: ModelUse) -> None:
        rows = []
        for word in ("lamp", "stone", "river", "window"):
            prompt = [{"role": "user", "content": f"Spell this word backward: {word}"}]
            info = {"ground_truth": word[::-1]}
            rows.append(
                {
                    "task_id": ids.task_id("reverse_text", prompt, info),
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
        table = table_from_rows(rows, collect.SCHEMA)
        commit_table(store, layout.tasks, table, schema=collect.SCHEMA, producer="test")
        commit_plan(store, layout, "annotators", plan_tasks(table), [use], 1, {})

    return make
