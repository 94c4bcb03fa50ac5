"""Our end of a socket to hostile code: frames of JSON, bounded in size and time.

4 bytes of length (big-endian), then JSON. Whatever else comes is EnvironmentBroken.
"""

import json
import socket
import time
from typing import Any

from verifiers import progress
from verifiers.errors import EnvironmentBroken, EnvironmentSlow
from verifiers.wire import HEADER

MAX_FRAME = 64 << 20
"""Bytes."""
_SLICE = 5.0
"""Seconds after which a pool that watches this process hears that it still waits."""


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class Line:
    """A conversation with one process of an environment."""

    def __init__(self, sock: socket.socket):
        self._sock = sock

    def send(self, message: dict[str, Any], seconds: float, fd: int = -1) -> None:
        """One frame, with a descriptor when `fd` is one."""
        try:
            body = json.dumps(message, allow_nan=False).encode("ascii")
        except (TypeError, ValueError, RecursionError) as error:
            raise EnvironmentBroken(f"a message to the environment is not JSON: {error}") from error
        self._sock.settimeout(seconds)
        try:
            data = HEADER.pack(len(body)) + body
            if fd >= 0:
                sent = socket.send_fds(self._sock, [data], [fd])
                data = data[sent:]
            self._sock.sendall(data)
        except OSError as error:
            raise EnvironmentBroken(f"the environment does not listen: {error}") from error

    def receive(self, seconds: float, *expected: str) -> tuple[str, Any]:
        """The next frame, an object with one key, out of `expected`; with its value."""
        deadline = time.monotonic() + seconds
        (length,) = HEADER.unpack(self._take(HEADER.size, deadline))
        if length > MAX_FRAME:
            raise EnvironmentBroken(f"the environment announces {length} bytes; {MAX_FRAME} may be")
        try:
            message = json.loads(self._take(length, deadline), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise EnvironmentBroken(f"the environment wrote no JSON: {error}") from error
        if not isinstance(message, dict) or len(message) != 1:
            raise EnvironmentBroken(f"the environment wrote {message!r:.100}, not one reply")
        ((key, value),) = message.items()
        if key == "error":
            raise EnvironmentBroken(f"the environment failed: {value!s:.400}")
        if key not in expected:
            raise EnvironmentBroken(f"the environment wrote {key!r:.60}, not {expected[0]!r}")
        return key, value

    def _take(self, count: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise EnvironmentSlow("the environment took too long")
            progress.report(progress.ANSWER)
            self._sock.settimeout(min(left, _SLICE))
            try:
                chunk = self._sock.recv(min(count - len(data), 1 << 20))
            except TimeoutError:
                continue
            except OSError as error:
                raise EnvironmentBroken(f"no word from the environment: {error}") from error
            if not chunk:
                raise EnvironmentBroken("the environment's process ended")
            data += chunk
        return bytes(data)

    def close(self) -> None:
        """Hang up."""
        self._sock.close()
