"""One chat completion from an OpenAI-compatible service, within a deadline.

Invariants: what is temporary (no connection, time, 408, 429, 5xx) is tried again, waiting longer
each time or as long as the service asks; everything else is a VerifierFault at once. Redirects are
not followed, so the key goes to the configured host only; it never stands in a message.
"""

import http.client
import json
import random
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verifiers import progress
from verifiers.errors import VerifierFault

ATTEMPTS = 5
ATTEMPT_SECONDS = 120.0
"""For one request, from the connection to the last byte."""
TOTAL_SECONDS = 600.0
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
MAX_REPLY = 4 << 20
"""Bytes of a reply."""
TEMPORARY = (408, 409, 425, 429)


@dataclass(frozen=True)
class Endpoint:
    """Where the service is, and its key (empty: none)."""

    url: str
    key: str = field(default="", repr=False)

    def without_key(self, text: str) -> str:
        """`text` with the key blotted out, for services that repeat it."""
        return text.replace(self.key, "***") if self.key else text


class _Temporary(Exception):
    """Worth another attempt; `wait` is what the service asks for, in seconds."""

    def __init__(self, reason: str, wait: float = 0.0):
        super().__init__(reason)
        self.wait = wait


def ask(endpoint: Endpoint, request: Mapping[str, Any]) -> str:
    """The text of the first choice of `POST <url>/chat/completions`."""
    deadline = time.monotonic() + TOTAL_SECONDS
    body = json.dumps(request).encode("ascii")
    for attempt in range(1, ATTEMPTS + 1):
        progress.report(progress.ANSWER)  # each attempt restarts the caller's clock
        try:
            return _content(
                _post(endpoint, body, min(deadline, time.monotonic() + ATTEMPT_SECONDS))
            )
        except _Temporary as error:
            wait = max(error.wait, FIRST_WAIT * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))
            late = time.monotonic() + wait >= deadline
            if attempt == ATTEMPTS or wait > LONGEST_WAIT or late:
                reason = endpoint.without_key(str(error))
                raise VerifierFault(
                    f"no verdict after {attempt} requests: {reason}; see that the judge's service "
                    "runs and verify again"
                ) from None
        time.sleep(wait)
    raise AssertionError("unreachable")


def _post(endpoint: Endpoint, body: bytes, deadline: float) -> bytes:
    connection, path = _connect(endpoint.url, deadline)
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if endpoint.key:
        headers["Authorization"] = f"Bearer {endpoint.key}"
    try:
        connection.request("POST", path, body, headers)
        sock = connection.sock  # the connection forgets it when the service closes in the end
        response = connection.getresponse()
        data = bytearray()
        while chunk := response.read1(1 << 16):
            data += chunk
            if len(data) > MAX_REPLY:
                raise VerifierFault(f"the judge's service sent more than {MAX_REPLY >> 20} MiB")
            sock.settimeout(_left(deadline))
    except (OSError, http.client.HTTPException) as error:
        raise _Temporary(f"{type(error).__name__}: {error}") from None
    finally:
        connection.close()
    if response.status == 200:
        return bytes(data)
    text = " ".join(data[:300].decode("utf-8", "replace").split())
    said = endpoint.without_key(f"HTTP {response.status}: {text:.200}")
    if response.status in TEMPORARY or response.status >= 500:
        raise _Temporary(said, _asked_wait(response.headers.get("Retry-After")))
    raise VerifierFault(f"the judge's service refuses the request: {said}")


def _connect(url: str, deadline: float) -> tuple[http.client.HTTPConnection, str]:
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https") or parts.username or parts.query:
        raise VerifierFault(
            "the judge's base URL must be http(s)://host[:port]/path, without user name or query"
        )
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    path = f"{parts.path.rstrip('/')}/chat/completions"
    return kind(host, port, timeout=_left(deadline)), path


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the reply took too long")
    return left


def _asked_wait(header: str | None) -> float:
    try:
        seconds = float(header or 0)
    except ValueError:  # a date: rare, and our own waiting will do
        return 0.0
    return max(0.0, seconds) if seconds < float("inf") else float("inf")


def _content(data: bytes) -> str:
    """The reply's text; another shape, or a text that was cut off, is the service's fault."""
    try:
        choice = json.loads(data)["choices"][0]
        content, ended = choice["message"]["content"], choice.get("finish_reason")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise VerifierFault("the judge's service sent no chat completion") from None
    if not isinstance(content, str):
        raise VerifierFault("the judge's reply holds no text")
    if ended == "length":
        raise VerifierFault("the judge's reply was cut off before its end")
    return content
