"""Start the service: keys, database, ledger, TLS, HTTP."""

import asyncio
import hmac
import os
import socket
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from infra.pool.ledger import Ledger
from infra.pool.service.admission import Admission
from infra.pool.service.app import make_app
from infra.pool.service.errors import BadSetting
from infra.pool.service.figures import Figures
from infra.pool.service.gate import Gate, new_epoch
from infra.pool.service.limits import bounded_http
from infra.pool.service.listeners import Listeners
from infra.pool.service.loops import Loops
from infra.pool.service.node_routes import Certify
from infra.pool.service.pool import Pool
from infra.pool.service.settings import ServiceSettings
from infra.pool.service.store import PoolStore
from infra.pool.service.tls import load_ca
from infra.pool.service.uploads import Uploads
from infra.storage import Store
from infra.storage.secret import config_dir, shared_secret

ANY_ADDRESS = ("0.0.0.0", "::")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
ADMIN_KEY_VARIABLE = "TRACEMILL_POOL_ADMIN_KEY"
LEAST_KEY = 16
_KEEP_ALIVE = 40
"""Seconds; longer than the time between heartbeats, so that nodes keep their connections."""


def serve(
    settings: ServiceSettings,
    *,
    root: str,
    database: str,
    host: str,
    port: int,
    admin_key: str,
    tls: bool = False,
) -> None:
    """Serve until the process is told to end. Raises where anything is not in order.

    `tls` is for loopback: elsewhere there is nothing but TLS.
    """
    asyncio.run(_serve(settings, root, database, host, port, admin_key, tls))


def ca_file() -> Path:
    """Where the certificate of this user's own CA lies."""
    return config_dir() / "pool-ca" / "ca.pem"


def read_settings(file: Path | None) -> ServiceSettings:
    """The settings of a TOML file; without one, those that suit one machine."""
    try:
        return ServiceSettings.model_validate(tomllib.loads(file.read_text()) if file else {})
    except ValueError as error:
        raise BadSetting(f"settings {file}: {error}") from error


def read_admin_key(file: Path | None, store: Store) -> str:
    """The key of the file, of the environment, or this user's own, made at the first use."""
    key = file.read_text().strip() if file else os.environ.get(ADMIN_KEY_VARIABLE, "").strip()
    if not key and not file:
        secret = shared_secret("pool-admin.key", store)
        return hmac.digest(secret, b"pool admin key", "sha256").hex()
    if len(key) < LEAST_KEY:
        raise BadSetting(
            f"the admin key has {len(key)} characters; at least {LEAST_KEY} are needed"
        )
    return key


async def _serve(
    settings: ServiceSettings,
    root: str,
    database: str,
    host: str,
    port: int,
    admin_key: str,
    tls: bool,
) -> None:
    objects, epoch = Store(root), new_epoch()
    certify: Certify = _no_certificate
    options: dict[str, Any] = {}
    if tls or host not in LOOPBACK:
        directory = ca_file().parent
        ca = load_ca(directory)
        known = [urlsplit(settings.url).hostname or "localhost", "localhost", "127.0.0.1", "::1"]
        names = known if host in (*LOOPBACK, *ANY_ADDRESS) else [*known, host]
        certificate, key = ca.server_files(names, directory)
        options = {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}

        def certify(node_id: str) -> tuple[str, str]:
            return ca.node_certificate(node_id), ca.pem

    pool = Pool(PoolStore(database), settings, Listeners(settings.webhooks))
    ledger = Ledger(objects)
    await pool.open(epoch)
    gate, admission, figures = Gate(pool, admin_key, epoch), Admission(pool), Figures(pool)
    uploads = Uploads(pool, objects, shared_secret("pool-uploads.key", objects))
    loops = Loops(pool, ledger, uploads, admission, figures)
    ended: list[asyncio.Task[None]] = []

    def stop(task: "asyncio.Task[None]") -> None:
        ended.append(task)
        server.should_exit = True

    app = make_app(pool, gate, admission, uploads, figures, loops, certify, stop)
    server = _Server(
        pool,
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=bounded_http(settings.head_seconds),
            ws="none",
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=5,
            backlog=4096,
            **options,
        ),
    )
    await server.serve()
    for task in ended:
        try:
            task.result()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None


class _Server(uvicorn.Server):
    """Answers the requests that are held back before it ends."""

    def __init__(self, pool: Pool, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._pool = pool

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        self._pool.end()
        await super().shutdown(sockets)


def _no_certificate(_: str) -> tuple[str, str]:
    return "", ""
