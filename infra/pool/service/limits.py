"""Requests that are too long or too slow are refused before anything looks at them.

`bounded_http` closes a connection whose request head does not arrive in time, which uvicorn itself
does only between two requests; `Bounded` reads each body as a whole, within a size and a time,
and hands it on. Only the body of an upload is left to its route, which reads it in parts.
"""

import asyncio
import json
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from infra.pool.service.errors import ServiceError, TooLarge, TooSlow
from infra.pool.wire import MAX_BODY_BYTES

OBJECTS = "/storage/objects/"
"""Routes whose body is the object itself."""


class BoundedHttp(H11Protocol):
    """HTTP/1.1 that waits `head_seconds` for the head of a request."""

    head_seconds = 10.0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connects: its first request is due."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(self.head_seconds, self._late)

    def _late(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        idle = self.cycle is None or self.cycle.response_complete
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._disarm()
        elif idle and self._head_timer is None:
            # A part of a later head: it has ended uvicorn's own limit for idle connections.
            self._head_timer = self.loop.call_later(self.head_seconds, self._late)

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
            await refuse(send, error)
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
        size, deadline = 0, time.monotonic() + self._seconds
        while True:
            message = await self._next(receive, deadline)
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            size += len(part)
            if size > MAX_BODY_BYTES:
                raise TooLarge(f"the body is longer than {MAX_BODY_BYTES} bytes")
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)

    async def _next(self, receive: Receive, deadline: float) -> Message:
        try:
            return await asyncio.wait_for(receive(), deadline - time.monotonic())
        except TimeoutError:
            raise TooSlow(f"the body did not arrive within {self._seconds:g} s") from None


async def refuse(send: Send, error: ServiceError) -> None:
    """Answer with an error and close the connection: what is left of the body is not read."""
    body = refusal(error)
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def refusal(error: ServiceError) -> bytes:
    """The body of an error's answer."""
    return json.dumps({"success": False, "error": str(error), "code": error.code}).encode()
