"""Start the validator service: token, queue, model, HTTP."""

import os
from functools import partial
from pathlib import Path

import uvicorn

from infra.inference import load_engine
from infra.inference.prompts import ChatTokenizer
from infra.inference.transformers_engine import TransformersEngine
from infra.models import registry
from infra.pool.service.limits import BoundedHttp
from infra.storage import Store
from infra.storage.errors import BadPath
from tasks.validate.check import ModelFacts
from tasks.validate.config import ValidateConfig
from tasks.validate.errors import BadToken, OpenService
from tasks.validate.service import LEAST_TOKEN, LOOPBACK, Answer, QueueWorker, make_app
from tasks.validate.service_files import UploadReader
from tasks.validate.service_group import validate_group
from tasks.validate.service_queue import Work, WorkQueue
from tasks.validate.service_work import validate_file
from tasks.validate.work_units import WorkUnits

TOKEN_VARIABLE = "TRACEMILL_VALIDATOR_TOKEN"


def serve(
    model: str,
    root: str,
    config: ValidateConfig,
    *,
    host: str,
    port: int,
    state: Path,
    token_file: Path | None,
    threads: int,
) -> None:
    """Serve until the process is ended. Raises before it listens if anything is not in order."""
    token = read_token(token_file)
    if not token and host not in LOOPBACK:
        raise OpenService(host)
    store, revision = Store(root), registry.revision(model)
    local = store.local_path("x")
    if local is not None and state.resolve().is_relative_to(local.parent.resolve()):
        raise BadPath(f"--state {state} lies below the root {store.root}, which nodes write to")
    queue = WorkQueue(state / "queue.sqlite")
    make = partial(_make_answer, queue, store, model, revision, config, threads)
    worker = QueueWorker(queue, make)
    worker.start()
    names = {"model": model, "model_revision": revision}
    app = make_app(queue, worker, store, names, token)
    try:
        uvicorn.run(
            app,
            host=host,
            port=port,
            http=BoundedHttp,
            log_level="warning",
            limit_concurrency=256,
        )
    finally:
        queue.close()


def read_token(file: Path | None) -> str:
    """The token of the file or of the environment; empty if there is none."""
    token = file.read_text().strip() if file else os.environ.get(TOKEN_VARIABLE, "").strip()
    if (token or file) and len(token) < LEAST_TOKEN:
        raise BadToken(len(token), LEAST_TOKEN)
    return token


def _make_answer(
    queue: WorkQueue,
    store: Store,
    model: str,
    revision: str,
    config: ValidateConfig,
    threads: int,
) -> Answer:
    engine: TransformersEngine = load_engine(model, threads)
    ModelFacts.of(engine, config)  # an unreadable profile shows now, not with the first upload
    directory = registry.materialise(model)
    reader = UploadReader(store, ChatTokenizer(directory, model), revision)
    units = WorkUnits.of_directory(directory)

    def answer(work: Work) -> dict[str, object] | None:
        kind, _, name = work.name.partition(":")
        if kind == "file":
            return validate_file(name, work, queue, reader, engine, config, units)
        return validate_group(name, work, queue, store, reader, engine, config, units)

    return answer
