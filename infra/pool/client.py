"""The pool's HTTP client: a node's signed requests and an owner's requests with the admin key.

Invariants: a request that is sent again is signed again, with a new nonce; a service that was
restarted has another epoch, which its refusal names, and the request goes out once more for it; a
service that does not answer is tried again for `patience` seconds, then PoolUnreachable. Whatever
is sent may so arrive twice: each route says the same the second time.
"""

import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from infra.pool.errors import NotTrusted, PoolUnreachable, RequestRefused, UnsafeUrl
from infra.pool.signature import EPOCH, TIME, sign_request
from infra.pool.wire import Answer, Epoch, Refusal
from toploc.signing import SigningKey

T = TypeVar("T", bound=Answer)

TIMEOUT = 20.0
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
_BUSY = frozenset({429, 502, 503, 504})
_EXISTS = 412


class PoolClient:
    """Requests to one service; safe to use from several threads."""

    def __init__(
        self,
        url: str,
        *,
        key: SigningKey | None = None,
        admin_key: str = "",
        ca: Path | None = None,
        patience: float = 60.0,
    ):
        """Give a node's `key` or the `admin_key`; `ca` is the PEM file of the pool's own CA."""
        self._key, self._epoch, self._patience = key, "", patience
        self._ca = str(ca or "")
        self._other: httpx.Client | None = None
        self._lock = threading.Lock()
        self._taken_ms = 0
        headers = {"authorization": f"Bearer {admin_key}"} if admin_key else {}
        verify = ssl.create_default_context(cafile=str(ca)) if ca else True
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
        self._http = httpx.Client(
            base_url=url, headers=headers, verify=verify, timeout=TIMEOUT, limits=limits,
            # The pool is where we were told, not behind somebody's proxy or redirect.
            trust_env=False,
        )  # fmt: skip

    def close(self) -> None:
        """Close all connections."""
        self._http.close()
        if self._other is not None:
            self._other.close()

    def call(
        self,
        method: str,
        path: str,
        body: BaseModel | None = None,
        answer: type[T] = Answer,  # type: ignore[assignment]
        *,
        timeout: float = TIMEOUT,
        patience: float | None = None,
    ) -> T:
        """One request; RequestRefused with the service's code, or PoolUnreachable."""
        data = b"" if body is None else body.model_dump_json(exclude_unset=True).encode()
        response = self._patiently(lambda: self._send(method, path, data, timeout), patience)
        try:
            return answer.model_validate_json(response.content)
        except ValidationError as error:
            raise RequestRefused(
                method, path, response.status_code, "BAD_ANSWER", str(error)
            ) from (error)

    def put_file(self, url: str, data: bytes, headers: dict[str, str]) -> None:
        """Upload bytes to a signed URL of the service or of an object store.

        Where the pool speaks TLS, so must what it sends us to: else it could have us write to
        anything on our own network. UnsafeUrl otherwise.
        """
        if self._http.base_url.scheme == "https" and httpx.URL(url).scheme != "https":
            raise UnsafeUrl(str(self._http.base_url), url)
        own = httpx.URL(url).host == self._http.base_url.host
        http = self._http if own else self._elsewhere()
        try:
            self._patiently(lambda: http.put(url, content=data, headers=headers, timeout=300), None)
        except RequestRefused as error:
            # It is there: an answer was lost. What is there the pool looks at itself.
            if error.status != _EXISTS:
                raise

    def _elsewhere(self) -> httpx.Client:
        """For object stores: certificates that anybody trusts, nothing of ours in the headers."""
        with self._lock:
            if self._other is None:
                self._other = httpx.Client(trust_env=False)
            return self._other

    def _patiently(
        self, send: Callable[[], httpx.Response], patience: float | None
    ) -> httpx.Response:
        """Send until there is an answer that says more than "not now"."""
        deadline = time.monotonic() + (self._patience if patience is None else patience)
        pause, renewed = FIRST_PAUSE, False
        while True:
            try:
                response = send()
            except (httpx.TransportError, ConnectionError) as error:
                if untrusted := _certificate_fault(error):
                    raise NotTrusted(str(self._http.base_url), untrusted, self._ca) from error
                why, wait = f"{type(error).__name__}: {error}", 0.0
            else:
                if response.is_success:
                    return response
                refusal = _refusal(response)
                if refusal.code == "WRONG_EPOCH" and not renewed:
                    self._epoch, renewed = response.headers.get(EPOCH, ""), True
                    continue
                if response.status_code not in _BUSY:
                    request = response.request
                    raise RequestRefused(
                        request.method,
                        request.url.path,
                        response.status_code,
                        refusal.code,
                        refusal.error,
                    )
                why, wait = f"{refusal.code}: {refusal.error}", _retry_after(response)
            if time.monotonic() + max(pause, wait) > deadline:
                raise PoolUnreachable(str(self._http.base_url), why)
            time.sleep(max(pause, wait))
            pause, renewed = min(2 * pause, LONGEST_PAUSE), False

    def _send(self, method: str, path: str, data: bytes, timeout: float) -> httpx.Response:
        request = self._http.build_request(method, path, content=data, timeout=timeout)
        if data:
            request.headers["content-type"] = "application/json"
        if self._key is not None:
            if not self._epoch:
                known = self._http.get("/epoch")
                if not known.is_success:
                    return known
                self._epoch = Epoch.model_validate_json(known.content).epoch
            where, _, query = request.url.raw_path.decode("ascii").partition("?")
            # A clock that is set back must not make new requests older than those taken.
            request.headers.update(
                sign_request(
                    self._key, self._epoch, method, where, query, data, after=self._taken_ms
                )
            )
        response = self._http.send(request)
        if self._key is not None and response.status_code != 401:
            with self._lock:
                self._taken_ms = max(self._taken_ms, int(request.headers[TIME]))
        return response


def _certificate_fault(error: BaseException | None) -> str:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        error = error.__cause__ or error.__context__
    return ""


def _refusal(response: httpx.Response) -> Refusal:
    try:
        return Refusal.model_validate_json(response.content)
    except ValidationError:
        return Refusal(error=response.text[:200], code=f"HTTP_{response.status_code}")


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return min(float(text), 30.0) if text.isascii() and text.isdigit() else 0.0
