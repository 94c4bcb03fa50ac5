"""Requests that are too long or too slow are refused before anything looks at them.

`bounded_http` closes a connection whose request head is too long or does not arrive in time, which
uvicorn itself does not, and sends head and body of an answer together; `Bounded` reads each body as
a whole, within a size and a time, and hands it on. Only the body of an upload is left to its route,
which reads it in parts.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from infra.pool.service.errors import ServiceError, TooLarge, TooSlow
from infra.pool.wire import MAX_BODY_BYTES

MAX_HEAD_BYTES = 64 << 10
OBJECTS = "/storage/objects/"
"""Routes whose body is the object itself."""


class _Corked:
    """A transport that sends together what is written within one turn of the loop."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send soon."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Send what waits, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            self._transport.write(b"".join(self._parts))
            self._parts.clear()


class BoundedHttp(HttpToolsProtocol):
    """HTTP/1.1 that waits `head_seconds` for the head of a request, of MAX_HEAD_BYTES at most."""

    head_seconds = 10.0
    _head_timer: asyncio.TimerHandle | None = None
    _besides = 0
    """Bytes of the request that are not its body: head, chunk sizes, trailers."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connects: its first request is due."""
        super().connection_made(_Corked(transport, self.loop))  # type: ignore[arg-type]
        self._head_timer = self.loop.call_later(self.head_seconds, self._abort)

    def _abort(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        idle = self.cycle is None or self.cycle.response_complete
        self._besides += len(data)
        super().data_received(data)
        if self._besides > MAX_HEAD_BYTES:
            self._abort()
        if self.cycle is not None and not self.cycle.response_complete:
            self._disarm()
        elif idle and self._head_timer is None:
            # A part of a later head: it has ended uvicorn's own limit for idle connections.
            self._head_timer = self.loop.call_later(self.head_seconds, self._abort)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._besides -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The end of a request."""
        self._besides = 0
        super().on_message_complete()

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._disarm()
        super().connection_lost(exc)


def bounded_http(head_seconds: float) -> type[BoundedHttp]:
    """The protocol for uvicorn, which makes one object of it for each connection."""
    return type("BoundedHttp", (BoundedHttp,), {"head_seconds": head_seconds})


class Bounded:
    """ASGI middleware: bodies of at most MAX_BODY_BYTES that arrive within some seconds."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, then let the request through."""
        if scope["type"] != "http" or scope["path"].startswith(OBJECTS):
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(scope, receive)
        except ServiceError as error:
            # What is left of the body is not read.
            answer = refused(error)
            answer.headers["connection"] = "close"
            await answer(scope, receive, send)
            return
        if body is None:
            return
        scope["tracemill.body"] = body
        handed = False

        async def again() -> Message:
            nonlocal handed
            if handed:
                return await receive()
            handed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, again, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body; None where the client went away."""
        for name, value in scope["headers"]:
            if name == b"content-length" and (len(value) > 15 or int(value) > MAX_BODY_BYTES):
                length = value[:20].decode("latin-1")
                raise TooLarge(f"the body has {length} bytes; allowed are {MAX_BODY_BYTES}")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    part = message.get("body", b"")
                    size += len(part)
                    if size > MAX_BODY_BYTES:
                        raise TooLarge(f"the body is longer than {MAX_BODY_BYTES} bytes")
                    parts.append(part)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise TooSlow(f"the body did not arrive within {self._seconds:g} s") from None


class Straight:
    """ASGI middleware: requests of one route go to it without the rest of the framework."""

    def __init__(
        self,
        app: ASGIApp,
        route: tuple[str, str],
        answer: Callable[[Request], Awaitable[Response]],
    ) -> None:
        """`route` is (method, path); `answer` may raise ServiceError."""
        self._app, self._route, self._answer = app, route, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the request through."""
        if scope["type"] != "http" or (scope["method"], scope["path"]) != self._route:
            await self._app(scope, receive, send)
            return
        try:
            response = await self._answer(Request(scope, receive))
        except ServiceError as error:
            response = refused(error)
        await response(scope, receive, send)


def refused(error: ServiceError) -> Response:
    """An error's answer."""
    body = json.dumps({"success": False, "error": str(error), "code": error.code})
    return Response(
        body, status_code=error.status, headers=error.headers, media_type="application/json"
    )
