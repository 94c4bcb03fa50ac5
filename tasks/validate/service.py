"""The validator as an HTTP service, one per model: trigger a file or a group, ask for its status.

    POST /validate/{file}            {"file_sha", "address"}
    GET  /status/{file}              {"status", "reason", "input_flops", "output_flops", ...}
    POST /validategroup/{file}       {"file_shas", "group_id", "file_number", "group_size",
                                      "attempt" (0 unless the traces were started again)}
    GET  /statusgroup/{file}         the same with "failing_indices"
    GET  /health, /metrics

Field names and values of `status` (accept, reject, crashed, pending, unknown) are those of
toploc-validator. Invariants: a trigger is answered before anything is computed, and is safe to
repeat; what was answered with 200 survives the process; all but /health needs the token, compared
in constant time; a request is small, or refused unread.
"""

import hmac
import json
import logging
import re
import threading
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from infra.storage import Store
from infra.storage.errors import BadPath, StorageError
from tasks.validate.errors import OtherRequest
from tasks.validate.service_queue import Work, WorkQueue

logger = logging.getLogger(__name__)

MAX_BODY = 1 << 16
MAX_STAGES = 256
LOOPBACK = ("127.0.0.1", "::1", "localhost")
LEAST_TOKEN = 16

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Answer = Callable[[Work], dict[str, Any] | None]
"""The result of a request; None: it was put back into the queue."""


class FileTrigger(BaseModel):
    """Body of POST /validate."""

    model_config = ConfigDict(extra="forbid")

    file_sha: Sha256
    address: str = Field(min_length=1, max_length=128)


class GroupTrigger(BaseModel):
    """Body of POST /validategroup."""

    model_config = ConfigDict(extra="forbid")

    file_shas: list[Sha256] = Field(min_length=1, max_length=MAX_STAGES)
    group_id: str = Field(pattern=r"^[0-9a-fA-F]{1,64}$")
    file_number: int = Field(ge=0)
    group_size: int = Field(ge=1, le=MAX_STAGES)
    attempt: int = Field(0, ge=0, lt=1 << 63)
    """How often the group was asked for these traces before; what its stages signed says so too."""


class QueueWorker:
    """The one thread that works on the queue."""

    def __init__(self, queue: WorkQueue, make_answer: Callable[[], Answer]):
        self._queue = queue
        self._make_answer = make_answer
        self.ready = threading.Event()
        self.failed = ""

    def start(self) -> None:
        """Begin; a process that ends in the middle leaves its work to the next one."""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            answer = self._make_answer()
        except Exception as error:
            self.failed = f"{type(error).__name__}: {error}"
            raise
        self.ready.set()
        while not self._queue.closed:
            work = self._queue.take(wait_seconds=3600)
            if work is None:
                continue
            try:
                result = answer(work)
            except Exception as error:
                logger.exception("%s", work.name)
                result = {"status": "crashed", "reason": f"{type(error).__name__}: {error}"[:500]}
            if result is not None:
                self._queue.finish(work, result)


def make_app(
    queue: WorkQueue, worker: QueueWorker, store: Store, names: dict[str, str], token: str
) -> FastAPI:
    """The HTTP side. `names` says which model is served; an empty token lets everybody in."""

    def admitted(request: Request) -> None:
        given = request.headers.get("authorization", "").encode()
        if token and not hmac.compare_digest(given, f"Bearer {token}".encode()):
            raise HTTPException(401, "send Authorization: Bearer <token>")

    app = FastAPI(title="tracemill validator", docs_url=None, redoc_url=None, openapi_url=None)
    guarded = [Depends(admitted)]

    @app.get("/health")
    def health(response: Response) -> dict[str, Any]:
        if not worker.ready.is_set():
            response.status_code = 503
        state = worker.failed or ("ready" if worker.ready.is_set() else "loading the model")
        return {"state": state, **names}

    @app.get("/metrics", dependencies=guarded)
    def metrics() -> Response:
        name = "tracemill_validator_requests"
        lines = [f"# HELP {name} Requests in the queue and answered.", f"# TYPE {name} gauge"]
        lines += [f'{name}{{state="{key}"}} {count}' for key, count in queue.counts().items()]
        return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    @app.post("/validate/{file:path}", dependencies=guarded)
    async def validate(file: str, request: Request) -> dict[str, str]:
        body = await _body(request, FileTrigger)
        await run_in_threadpool(_present, store, [file])
        return _trigger(queue, f"file:{file}", body)

    @app.get("/status/{file:path}", dependencies=guarded)
    def status(file: str) -> Any:
        return _status(queue, f"file:{file}")

    @app.post("/validategroup/{file:path}", dependencies=guarded)
    async def validate_group(file: str, request: Request) -> dict[str, str]:
        body = await _body(request, GroupTrigger)
        await run_in_threadpool(_present, store, stage_files(file, body))
        return _trigger(queue, f"group:{file}", body)

    @app.get("/statusgroup/{file:path}", dependencies=guarded)
    def status_group(file: str) -> Any:
        return {"failing_indices": []} | _status(queue, f"group:{file}")

    return app


def stage_files(group_file: str, body: BaseModel) -> list[str]:
    """The stages' files of a group's, which must be the one that the trigger describes."""
    fields = body.model_dump()
    tail = f"-{fields['group_id']}-{fields['group_size']}-{fields['file_number']}"
    stem, dot, ext = group_file.rpartition(".")
    if not stem.endswith(tail) or len(fields["file_shas"]) != fields["group_size"]:
        raise HTTPException(
            422,
            f"group file {group_file[:200]!r} with {len(fields['file_shas'])} file_shas is not "
            f"<prefix>{tail}.<ext> with one sha256 per stage",
        )
    return [f"{stem}-{index}{dot}{ext}" for index in range(fields["group_size"])]


async def _body(request: Request, model: type[BaseModel]) -> BaseModel:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise HTTPException(413, f"the body is longer than {MAX_BODY} bytes")
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise HTTPException(422, problems[:10]) from error


def _present(store: Store, files: list[str]) -> None:
    """404 for what is not in storage, 400 for what can be no name there."""
    for file in files:
        if len(file) > 512 or not re.fullmatch(r"[^\x00-\x1f\x7f]+\.parquet", file):
            raise HTTPException(400, f"file name {file[:200]!r} is not that of a .parquet upload")
        try:
            if not store.exists(file):
                raise HTTPException(404, f"there is no {file!r} in storage; upload it first")
        except BadPath as error:
            raise HTTPException(400, str(error)) from error
        except StorageError as error:
            raise HTTPException(503, f"storage: {error}") from error


def _trigger(queue: WorkQueue, name: str, body: BaseModel) -> dict[str, str]:
    try:
        queue.trigger(name, body.model_dump())
    except OtherRequest as error:
        raise HTTPException(409, str(error)) from error
    return {"status": str(_status(queue, name)["status"])}


def _status(queue: WorkQueue, name: str) -> dict[str, Any]:
    found = queue.find(name)
    if found is None:
        raise HTTPException(404, f"{json.dumps(name[:200])} was never triggered")
    if found.state == "done":
        return found.result
    return found.result | {"status": "pending"}
