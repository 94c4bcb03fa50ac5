"""The service's own upload URLs, for where nodes do not reach the object store themselves."""

import asyncio

from fastapi import APIRouter, Request

from infra.pool import wire
from infra.pool.service.errors import BadRequest, Conflict, TooLarge, TooMany, TooSlow
from infra.pool.service.uploads import Uploads

AT_ONCE = 4
"""Uploads in memory at a time; each is at most MAX_UPLOAD_BYTES."""
LEAST_RATE = 64 << 10
"""Bytes per second that an upload must make, once it has had `GRACE` seconds."""
GRACE = 20.0


def storage_routes(uploads: Uploads) -> APIRouter:
    """PUT of an object; the URL itself says who may."""
    router = APIRouter(tags=["storage"])
    busy = asyncio.Semaphore(AT_ONCE)

    @router.put("/storage/objects/{token}")
    async def put(token: str, request: Request) -> wire.Done:
        """Create the object that the URL was signed for."""
        name, sha256, size = uploads.claimed(token)
        length = request.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 15):
            raise BadRequest("send the object's Content-Length", "NO_LENGTH")
        if int(length) > size:
            raise TooLarge(f"the body has {length} bytes; this URL is good for {size}")
        if int(length) != size:
            raise Conflict(f"the body has {length} bytes, promised were {size}", "OTHER_SIZE")
        if busy.locked():
            raise TooMany(f"{AT_ONCE} uploads are under way", retry_after=1.0)
        async with busy:
            data = await _read(request, size)
            await uploads.write(name, sha256, data)
        return wire.Done()

    return router


async def _read(request: Request, size: int) -> bytes:
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(GRACE + size / LEAST_RATE):
            async for part in request.stream():
                parts.append(part)
    except TimeoutError:
        raise TooSlow(f"the object did not arrive at {LEAST_RATE} bytes per second") from None
    data = b"".join(parts)
    if len(data) != size:
        raise Conflict(f"{len(data)} bytes came, promised were {size}", "OTHER_SIZE")
    return data
