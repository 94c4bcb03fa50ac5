"""The service's own upload URLs, for where nodes do not reach the object store themselves."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import APIRouter, Request

from infra.pool import wire
from infra.pool.service.errors import BadRequest, Conflict, TooLarge, TooMany, TooSlow
from infra.pool.service.uploads import Uploads

AT_ONCE_BYTES = 4 * wire.MAX_UPLOAD_BYTES
"""Of uploads in memory at a time."""
LEAST_RATE = 64 << 10
"""Bytes per second that an upload must make, once it has had `GRACE` seconds."""
GRACE = 20.0


def storage_routes(uploads: Uploads) -> APIRouter:
    """PUT of an object; the URL itself says who may."""
    router = APIRouter(tags=["storage"])
    room = _Room()

    @router.put("/storage/objects/{token}")
    async def put(token: str, request: Request) -> wire.Done:
        """Create the object that the URL was signed for."""
        name, sha256, size, node_id = uploads.claimed(token)
        length = request.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 15):
            raise BadRequest("send the object's Content-Length", "NO_LENGTH")
        if int(length) > size:
            raise TooLarge(f"the body has {length} bytes; this URL is good for {size}")
        if int(length) != size:
            raise Conflict(f"the body has {length} bytes, promised were {size}", "OTHER_SIZE")
        with room.taken(node_id, size):
            data = await _read(request, size)
            await uploads.write(name, sha256, data)
        return wire.Done()

    return router


class _Room:
    """Memory for uploads; a node has one under way, so that a slow one holds up nobody else."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    @contextmanager
    def taken(self, node_id: str, size: int) -> Iterator[None]:
        """Room for one upload; TooMany where there is none now."""
        if node_id in self._sizes:
            raise TooMany("an upload of this node is under way", retry_after=1.0)
        if sum(self._sizes.values()) + size > AT_ONCE_BYTES:
            raise TooMany(f"{len(self._sizes)} uploads are under way", retry_after=1.0)
        self._sizes[node_id] = size
        try:
            yield
        finally:
            del self._sizes[node_id]


async def _read(request: Request, size: int) -> bytes:
    parts: list[bytes] = []
    left = size
    try:
        async with asyncio.timeout(GRACE + size / LEAST_RATE):
            async for part in request.stream():
                parts.append(part)
                left -= len(part)
                if left < 0:
                    raise TooLarge(f"the body is longer than {size} bytes")
    except TimeoutError:
        raise TooSlow(f"the object did not arrive at {LEAST_RATE} bytes per second") from None
    data = b"".join(parts)
    if len(data) != size:
        raise Conflict(f"{len(data)} bytes came, promised were {size}", "OTHER_SIZE")
    return data
