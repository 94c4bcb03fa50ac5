"""Who may come in: signatures, nonces, rates, the admin key.

Invariants: a signed request is taken once. Its time must be within `WINDOW` of ours, its nonce is
remembered for longer than that, and it is signed for this run of the service, so that the memory of
nonces need not survive it. A heartbeat is taken only if it was signed after the last one that was,
so that one which was held back on its way undoes nothing. A node's rate counts only what it signed
itself: nobody can use it up for another.
"""

import hmac
import secrets
import time
from dataclasses import dataclass

from fastapi import Request

from infra.pool.core.life import OUT
from infra.pool.service.errors import Conflict, Forbidden, TooMany, Unauthenticated
from infra.pool.service.pool import Pool
from infra.pool.signature import EPOCH, parse_headers

WINDOW = 60.0
"""Seconds that a node's clock may be off."""
_MAX_BUCKETS = 200_000


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class Rates:
    """Token buckets: `per_minute` requests, as many at once."""

    def __init__(self, per_minute: float) -> None:
        self._most = per_minute
        self._buckets: dict[str, _Bucket] = {}

    def take(self, name: str) -> None:
        """Count a request; TooMany where there were too many."""
        now = time.monotonic()
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= _MAX_BUCKETS:
                self._forget(now)
            bucket = self._buckets[name] = _Bucket(self._most, now)
        per_second = self._most / 60.0
        bucket.left = min(self._most, bucket.left + (now - bucket.at) * per_second)
        bucket.at = now
        if bucket.left < 1.0:
            wait = (1.0 - bucket.left) / per_second
            raise TooMany(
                f"more than {self._most:g} requests a minute; wait {wait:.0f} s", retry_after=wait
            )
        bucket.left -= 1.0

    def _forget(self, now: float) -> None:
        # Full again after a minute: forgetting it changes nothing.
        self._buckets = {k: b for k, b in self._buckets.items() if now - b.at < 60.0}


class _Nonces:
    """Remembers each for at least `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._turned = time.monotonic()
        self._old: set[str] = set()
        self._new: set[str] = set()

    def first_time(self, nonce: str) -> bool:
        now = time.monotonic()
        if now - self._turned > self._seconds:
            self._old, self._new, self._turned = self._new, set(), now
        if nonce in self._new or nonce in self._old:
            return False
        self._new.add(nonce)
        return True


class Gate:
    """Checks requests; belongs to one event loop, so its dependencies are coroutines.

    FastAPI would run plain functions in threads.
    """

    def __init__(self, pool: Pool, admin_key: str, epoch: str) -> None:
        self._pool = pool
        self._admin_key = f"Bearer {admin_key}".encode()
        self.epoch = epoch
        # A time may be WINDOW ahead of ours and is good until it is WINDOW behind.
        self._nonces = _Nonces(2 * WINDOW + 5)
        self._rates = Rates(pool.settings.requests_per_minute)
        self._strangers = Rates(pool.settings.strangers_per_minute)
        self._last_beat: dict[str, int] = {}

    async def node(self, request: Request) -> str:
        """The node that signed a request, which must be registered."""
        node_id = await self.signer(request)
        if node_id not in self._pool.state.nodes:
            raise Forbidden("this node is not registered here: PUT /nodes first", "UNKNOWN_NODE")
        return node_id

    async def signer(self, request: Request) -> str:
        """The key that signed a request, of a node or of a stranger."""
        signed = parse_headers(
            {name.decode("latin-1"): text.decode("latin-1") for name, text in request.headers.raw}
        )
        if signed is None:
            raise Unauthenticated(
                "the x-tracemill-* headers of a signed request are missing or malformed; see "
                "infra/pool/signature.py",
                "BAD_SIGNATURE_HEADERS",
            )
        if not hmac.compare_digest(signed.epoch.encode(), self.epoch.encode()):
            raise Unauthenticated(
                "the request is signed for another run of this service; sign it for the epoch in "
                f"the header {EPOCH}",
                "WRONG_EPOCH",
                {EPOCH: self.epoch},
            )
        known = signed.node_id in self._pool.state.nodes
        if not known:
            self._strangers.take(request.client.host if request.client else "")
        apart = time.time() - signed.time_ms / 1000.0
        if abs(apart) > WINDOW:
            raise Unauthenticated(
                f"the request's time is {apart:.0f} s behind ours; allowed are {WINDOW:.0f} s. Set "
                "the node's clock",
                "REQUEST_EXPIRED",
            )
        path = request.scope["raw_path"].decode("latin-1").partition("?")[0]
        query = request.scope["query_string"].decode("latin-1")
        if not signed.genuine(request.method, path, query, request.scope["tracemill.body"]):
            raise Unauthenticated("the signature is not that of this request", "SIGNATURE_MISMATCH")
        if not self._nonces.first_time(f"{signed.node_id}{signed.nonce}"):
            raise Conflict("this request was made already", "NONCE_ALREADY_USED")
        if known:
            if self._pool.state.nodes[signed.node_id].state in OUT:
                raise Forbidden("this node is excluded from the pool", "NODE_EXCLUDED")
            self._rates.take(signed.node_id)
        request.scope["tracemill.time_ms"] = signed.time_ms
        return signed.node_id

    def in_order(self, node_id: str, time_ms: int) -> None:
        """Refuse a heartbeat that was signed before one that was taken."""
        if time_ms <= self._last_beat.get(node_id, 0):
            raise Conflict("a later heartbeat of this node was taken already", "OUT_OF_ORDER")
        self._last_beat[node_id] = time_ms

    async def admin(self, request: Request) -> None:
        """Only with the admin key."""
        given = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, self._admin_key):
            self._strangers.take(request.client.host if request.client else "")
            raise Unauthenticated(
                "send Authorization: Bearer <admin key>",
                "BAD_ADMIN_KEY",
                {"www-authenticate": "Bearer"},
            )


def new_epoch() -> str:
    """A name for this run of the service that nobody could know before."""
    return secrets.token_hex(16)
