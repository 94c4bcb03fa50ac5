"""The origin over HTTP: a directory of versions, read only.

GET `/<stream>/versions` -> {"versions": [...]}; `/<stream>/<version>/manifest.json` and
`/<stream>/<version>/shard_00000.bin` with ranges. Invariants: nothing but these names is served,
so no path leads out of the root; off loopback every request needs the bearer token of
TRACEMILL_BROADCAST_TOKEN. Integrity does not depend on the transport: manifests are signed.
"""

import argparse
import hmac
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse

from infra.broadcast.errors import OriginFault
from infra.broadcast.hosts import check_open
from infra.broadcast.manifest import MANIFEST_NAME, TOKEN_VARIABLE
from infra.broadcast.origin import published
from infra.pool.service.limits import BoundedHttp

START_SECONDS = 60.0
END_SECONDS = 5
"""How long requests may go on when the origin is to end: a slow reader does not keep it."""
_NAME = re.compile(rf"{re.escape(MANIFEST_NAME)}|shard_[0-9]{{5,}}\.bin")


def make_app(roots: dict[str, Path], token: str) -> FastAPI:
    """The origin of some streams; an empty token lets everybody in."""

    def gate(request: Request) -> None:
        given = request.headers.get("authorization", "").encode("utf-8", "surrogateescape")
        if token and not hmac.compare_digest(given, f"Bearer {token}".encode()):
            raise HTTPException(401, "send Authorization: Bearer <token>")

    app = FastAPI(title="tracemill origin", openapi_url=None, dependencies=[Depends(gate)])

    def root_of(stream: str) -> Path:
        if stream not in roots:
            raise HTTPException(404, "unknown stream")
        return roots[stream]

    @app.get("/{stream}/versions")
    def versions(stream: str) -> dict[str, list[int]]:
        return {"versions": published(root_of(stream))}

    @app.get("/{stream}/{version}/{name}")
    def file(stream: str, version: int, name: str) -> Response:
        path = root_of(stream) / str(version) / name
        if version < 0 or not _NAME.fullmatch(name) or not path.is_file():
            raise HTTPException(404, "unknown version or file")
        return FileResponse(path, media_type="application/octet-stream")

    return app


@contextmanager
def serving(
    roots: dict[str, Path], host: str = "127.0.0.1", port: int = 0, url: str = ""
) -> Iterator[str]:
    """Serve in a thread of this process; yields the URL. Port 0 takes a free one.

    `url` is what clients call it, behind a proxy or by another name; empty: its address.
    """
    token = os.environ.get(TOKEN_VARIABLE, "")
    check_open(host, token)
    if url:
        check_open(urlsplit(url).hostname or "", token)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        config = uvicorn.Config(
            make_app(roots, token),
            http=BoundedHttp,
            log_level="warning",
            limit_concurrency=256,
            timeout_graceful_shutdown=END_SECONDS,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            _wait_until_started(server, thread)
            name = f"[{host}]" if ":" in host else host
            yield url or f"http://{name}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    for _ in range(int(START_SECONDS * 100)):
        if server.started:
            return
        thread.join(0.01)
        if not thread.is_alive():
            break
    raise OriginFault("the origin did not start; its log says why")


def main() -> None:
    """Serve one stream until killed: `python -m infra.broadcast.service`."""
    parser = argparse.ArgumentParser(description="Serve published policy versions.")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    with serving({given.stream: given.root}, given.host, given.port) as url:
        print(url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
