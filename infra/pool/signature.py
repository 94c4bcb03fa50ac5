"""Requests signed with a node's key.

The signature covers method, path, query, hash of the body, time, nonce and the service's epoch, the
random name of one run of the service (GET /epoch; also in the header `x-tracemill-epoch` of every
refusal with the code WRONG_EPOCH). Invariants: nothing that a server acts on is outside the
signature; a signature is good for one service and one run of it, so what a restart forgets cannot
be used against it; within a run a nonce is good once, and as long as its time is.
"""

import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from toploc.signing import SigningKey, verify
from toploc.transcript import digest

NODE, TIME, NONCE, EPOCH, SIGNATURE = (
    f"x-tracemill-{name}" for name in ("node", "time", "nonce", "epoch", "signature")
)
_DOMAIN = "pool-request"


@dataclass(frozen=True, slots=True)
class Signed:
    """The headers of a signed request."""

    node_id: str
    time_ms: int
    """Milliseconds since 1970 by the node's clock."""
    nonce: str
    """32 hex digits."""
    epoch: str
    signature: bytes

    def headers(self) -> dict[str, str]:
        """As they are sent."""
        return {
            NODE: self.node_id,
            TIME: str(self.time_ms),
            NONCE: self.nonce,
            EPOCH: self.epoch,
            SIGNATURE: self.signature.hex(),
        }

    def genuine(self, method: str, path: str, query: str, body: bytes) -> bool:
        """Whether the node signed this request. Says nothing about time, nonce and epoch."""
        wanted = _digest(method, path, query, body, self.time_ms, self.nonce, self.epoch)
        return verify(self.node_id, wanted, self.signature)


def sign_request(
    key: SigningKey,
    epoch: str,
    method: str,
    path: str,
    query: str,
    body: bytes,
    *,
    after: int = 0,
) -> dict[str, str]:
    """Headers for one request; a request that is sent again is signed again.

    `path` and `query` are as in the request line, percent-encoded; `query` is without `?`. The time
    is later than `after`, in milliseconds since 1970, whatever the clock says.
    """
    time_ms, nonce = max(time.time_ns() // 1_000_000, after + 1), secrets.token_hex(16)
    signature = key.sign(_digest(method, path, query, body, time_ms, nonce, epoch))
    return Signed(key.node_id, time_ms, nonce, epoch, signature).headers()


def parse_headers(headers: Mapping[str, str]) -> Signed | None:
    """The signature that a request carries; None where one is missing or malformed."""
    try:
        time_text, nonce, epoch = headers[TIME], headers[NONCE], headers[EPOCH]
        signature = bytes.fromhex(headers[SIGNATURE])
        node_id = headers[NODE]
    except (KeyError, ValueError):
        return None
    if not (time_text.isascii() and time_text.isdigit() and len(time_text) <= 15):
        return None
    if len(nonce) != 32 or len(epoch) > 64 or len(node_id) != 64 or len(signature) != 64:
        return None
    return Signed(node_id, int(time_text), nonce, epoch, signature)


def _digest(
    method: str, path: str, query: str, body: bytes, time_ms: int, nonce: str, epoch: str
) -> bytes:
    hashed = hashlib.sha256(body).digest()
    return digest(_DOMAIN, method.upper(), path, query, hashed, time_ms, nonce, epoch)
