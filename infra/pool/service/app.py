"""The service's HTTP side, put together."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from infra.pool import wire
from infra.pool.core.errors import CoreError
from infra.pool.errors import PoolError
from infra.pool.service.admin_routes import admin_routes
from infra.pool.service.admission import Admission
from infra.pool.service.errors import BadRequest, ServiceError, Unavailable
from infra.pool.service.figures import Figures, metric_routes
from infra.pool.service.gate import Gate
from infra.pool.service.heartbeats import Heartbeats
from infra.pool.service.limits import Bounded, Straight, refused
from infra.pool.service.loops import SILENT_SECONDS, Loops
from infra.pool.service.node_routes import Certify, node_routes
from infra.pool.service.pool import Pool
from infra.pool.service.storage_routes import storage_routes
from infra.pool.service.task_routes import task_routes
from infra.pool.service.uploads import Uploads
from infra.storage.errors import StorageError


def make_app(
    pool: Pool,
    gate: Gate,
    admission: Admission,
    uploads: Uploads,
    figures: Figures,
    loops: Loops,
    certify: Certify,
    stop: Callable[[asyncio.Task[None]], None],
) -> FastAPI:
    """Routes, loops and errors; `stop` is told when the loops end by themselves."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        running = asyncio.create_task(loops.run())
        running.add_done_callback(stop)
        yield
        running.remove_done_callback(stop)
        if not running.done():
            await loops.finish()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await pool.journal.flush()
        await pool.store.close()

    app = FastAPI(
        title="Tracemill node pool",
        summary="Machines that come, go and lie.",
        description=wire.__doc__ or "",
        openapi_url="/api-docs/openapi.json",
        docs_url="/docs",
        redoc_url=None,
        lifespan=lifespan,
        responses={code: {"model": wire.Refusal} for code in (400, 401, 403, 404, 409, 413, 429)},
    )
    heartbeats = Heartbeats(pool, gate)
    app.add_middleware(Straight, route=("POST", "/heartbeat"), answer=heartbeats.answer)
    app.add_middleware(Bounded, seconds=pool.settings.body_seconds)
    app.include_router(node_routes(pool, gate, heartbeats, admission, uploads, certify))
    app.include_router(storage_routes(uploads))
    app.include_router(task_routes(pool, gate))
    app.include_router(admin_routes(pool, gate, admission))
    app.include_router(metric_routes(pool, gate, figures))

    def openapi() -> dict[str, Any]:
        schema = FastAPI.openapi(app)
        body = wire.Heartbeat.model_json_schema(ref_template="#/components/schemas/{model}")
        schema["components"]["schemas"] |= body.pop("$defs") | {"Heartbeat": body}
        return schema

    app.openapi = openapi  # type: ignore[method-assign]

    @app.get("/health")
    async def health(response: Response) -> dict[str, Any]:
        """Whether the loops turn; 500 where one does not."""
        now = time.monotonic()
        ages = {name: now - at for name, at in loops.last_run.items()}
        names = ("status_updater", "ledger", "object_audit")
        healthy = not pool.journal.failing and all(
            ages.get(name, SILENT_SECONDS) < SILENT_SECONDS for name in names
        )
        response.status_code = 200 if healthy else 500
        seconds = {f"{name}_last_run_seconds_ago": round(ages.get(name, -1.0), 1) for name in names}
        return {"healthy": healthy, "database": pool.journal.failing or "ok"} | seconds

    @app.get("/epoch")
    async def epoch() -> wire.Epoch:
        """What requests are signed for."""
        return wire.Epoch(epoch=gate.epoch, time_ms=time.time_ns() // 1_000_000)

    @app.exception_handler(ServiceError)
    async def refuse(_: Request, error: ServiceError) -> Response:
        return refused(error)

    @app.exception_handler(CoreError)
    async def malformed(_: Request, error: CoreError) -> Response:
        return refused(BadRequest(str(error), type(error).__name__))

    @app.exception_handler(StorageError)
    async def no_storage(_: Request, error: StorageError) -> Response:
        return refused(Unavailable(f"storage: {error}"))

    @app.exception_handler(PoolError)
    async def broken(_: Request, error: PoolError) -> Response:
        return refused(Unavailable(str(error)))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        return refused(BadRequest("; ".join(problems)[:2000], "INVALID_BODY"))

    @app.exception_handler(HTTPException)
    async def plain(_: Request, error: HTTPException) -> Response:
        other = ServiceError(str(error.detail), f"HTTP_{error.status_code}")
        other.status = error.status_code
        return refused(other)

    return app
