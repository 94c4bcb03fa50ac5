"""Everything that the rounds of one run need, put together; started and stopped with the block.

Invariant: what is made here lies in files of the run or is made anew from its config, so that a
second process can go on where a first one was killed.
"""

import secrets
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from transformers import AutoConfig

from data_contracts import rollouts as contract
from infra.broadcast import Origin
from infra.broadcast.service import serving
from infra.inference.prompts import ChatTokenizer
from infra.models.registry import materialise
from infra.pool import Job, NodePool
from infra.storage import Store
from infra.storage.errors import AlreadyExists
from infra.storage.secret import shared_secret
from tasks.generate.config import SamplingConfig
from tasks.train.objective import LengthConfig, ObjectiveConfig
from tasks.train.rollouts.config import TrustConfig
from tasks.train.rollouts.intake import Intake, Trusted
from tasks.train.rollouts.job import Broadcast, RolloutJob, is_held_out, rollout_job
from tasks.train.rollouts.standing import Standing
from tasks.train.rollouts.uploads import UploadReader
from tasks.train.rounds.config import OriginConfig, RoundsConfig
from tasks.train.rounds.dealer import Dealer
from tasks.train.rounds.driver import MARGIN, Driver, Events, Parts
from tasks.train.rounds.errors import NoFileSystem
from tasks.train.rounds.evaluation import EvaluationConfig
from tasks.train.rounds.layout import RlLayout
from tasks.train.rounds.plan import Planner
from tasks.train.rounds.selection import Rollouts, rows_of
from tasks.train.rounds.tasks import TaskSplit
from tasks.train.rounds.trainer_process import TrainerProcess, TrainerResources
from tasks.train.trainer import RunSettings, TrainerConfig, selection_path
from toploc.signing import SigningKey
from verifiers import VerifiersError, start_worker

PUBLISHER = "publisher.key"


@dataclass(frozen=True)
class Rounds:
    """What a run of rounds is, resolved."""

    seed: int
    model: str
    split: TaskSplit
    sampling: SamplingConfig
    rounds: RoundsConfig
    lengths: LengthConfig
    objective: ObjectiveConfig
    trainer: TrainerConfig
    trust: TrustConfig
    machine: TrainerResources
    evaluation: EvaluationConfig
    origin: OriginConfig = field(default_factory=OriginConfig)


@contextmanager
def opened(
    run: Rounds, store: Store, layout: RlLayout, pool: NodePool, events: Events
) -> Iterator[Driver]:
    """A driver with its trainer process, origin and checks; `run()` it."""
    trainer_log = store.local_path(f"{layout.trainer}/trainer.log")
    versions = store.local_path(layout.versions)
    if trainer_log is None or versions is None:
        raise NoFileSystem(store.root)
    run_dir = trainer_log.parent
    run_dir.mkdir(parents=True, exist_ok=True)
    start = materialise(run.model)
    policy = AutoConfig.from_pretrained(start, local_files_only=True)
    settings = RunSettings(
        model_dir=start, seed=run.seed, config=run.trainer, objective=run.objective
    )
    settings.write(run_dir)
    key = SigningKey(shared_secret(PUBLISHER, store))
    stream = stream_name(store, layout)
    origin = Origin(versions, stream, key, keep=run.rounds.staleness + 1 + MARGIN)
    planner = Planner(
        run_id=layout.run.run_id,
        seed=run.seed,
        model=run.model,
        split=run.split,
        tokenizer=ChatTokenizer(start, run.model),
        sampling=run.sampling,
        rounds=run.rounds,
        lengths=run.lengths,
        evaluation=run.evaluation,
    )
    planner.check_room(run.split.all(), 1, "the model's context", policy.max_position_embeddings)
    planner.check_room(
        run.split.train,
        run.sampling.max_tokens,
        "trainer.micro_batch_tokens",
        run.trainer.micro_batch_tokens,
    )

    def final(job: RolloutJob) -> bool:
        if is_held_out(job):
            return store.exists(layout.evaluation(job.step))
        return selection_path(run_dir, job.step).is_file()

    with ExitStack() as stack:
        verifier = threading.Thread(target=_first_verifier, daemon=True)
        verifier.start()
        url = stack.enter_context(serving({stream: versions}, **run.origin.model_dump()))
        broadcast = Broadcast(
            url=url, stream=stream, publisher=key.node_id, keep=run.rounds.staleness + 1 + MARGIN
        )
        trusted = Trusted(
            answers={task.task_id: task.verification_info for task in run.split.all()},
            tokenizer=planner.tokenizer,
            vocabulary=policy.vocab_size,
            lengths=run.lengths,
            objective=run.objective,
            broadcast=broadcast,
            folder=layout.folder,
            final=final,
        )
        standing = Standing(store, layout.run.run_id)
        reader = stack.enter_context(UploadReader())
        intake = Intake(store, layout.run, pool, standing, reader, run.trust, trusted)
        accepted = intake.accepted

        def to_job(asked: RolloutJob, attempt: int) -> Job:
            return rollout_job(asked, broadcast, attempt)

        dealer = stack.enter_context(
            Dealer(
                pool,
                to_job,
                intake.take,
                intake.throw_away,
                run.rounds.tries,
                run.rounds.backup_seconds,
            )
        )
        trainer = stack.enter_context(TrainerProcess(run_dir, run.rounds.steps, run.machine))

        def committed(job: RolloutJob) -> Rollouts | None:
            # Not taken back between one look and the other.
            with accepted.steady:
                file = accepted.of(job)
                if file is None:
                    return None
                rows = rows_of(store, file.path, run.lengths)
            errored = file.info["counts"]["quarantined"]
            return Rollouts(job.number, file.path, file.sha256, rows, errored)

        parts = Parts(
            store, layout, planner, dealer, trainer, origin, start, committed, accepted.steady
        )
        # Nodes and the trainer load meanwhile; with all loaded no answer waits for a part of ours.
        contract.load()
        reader.ready()
        verifier.join()
        yield Driver(parts, run.rounds, events)


def _first_verifier() -> None:
    with suppress(VerifiersError):  # the first answers that are scored say it
        start_worker()


def stream_name(store: Store, layout: RlLayout) -> str:
    """The run's stream: its id, and what tells it from a run of that id elsewhere or before.

    Versions of a stream stay on the nodes, and a version never changes.
    """
    drawn = {"stream": f"{layout.run.run_id}-{secrets.token_hex(8)}"}
    with suppress(AlreadyExists):
        store.write_json(layout.stream, drawn)
    return str(store.read_json(layout.stream)["stream"])
