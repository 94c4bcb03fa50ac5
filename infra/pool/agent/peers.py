"""Round trips to the other members of a group, as the time that a TCP connection takes to open."""

import socket
import threading
import time
from collections.abc import Sequence

from infra.pool.wire import Peer

TIMEOUT = 2.0
EVERY = 60.0


class Peers:
    """Measures in a thread of its own until it is closed."""

    def __init__(self, peers: Sequence[Peer]):
        self._peers = [peer for peer in peers if _place(peer) is not None]
        self._measured: dict[str, float] = {}
        self._ended = threading.Event()
        if self._peers:
            threading.Thread(target=self._run, daemon=True).start()

    def rtt_ms(self) -> dict[str, float]:
        """Milliseconds by node; those that were never reached are absent."""
        return dict(self._measured)

    def close(self) -> None:
        """Measure no more."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            for peer in self._peers:
                taken = _connect(peer)
                if taken is not None:
                    self._measured[peer.node_id] = taken
            self._ended.wait(EVERY)


def _place(peer: Peer) -> tuple[str, int] | None:
    host, _, port = peer.address.rpartition(":")
    return (host, int(port)) if host and port.isdecimal() and int(port) else None


def _connect(peer: Peer) -> float | None:
    place = _place(peer)
    assert place is not None
    started = time.perf_counter()
    try:
        socket.create_connection(place, TIMEOUT).close()
    except ConnectionRefusedError:
        pass  # the refusal took a round trip too
    except (OSError, ValueError, OverflowError):
        # Another node said what its address is; it need not be one.
        return None
    return 1000.0 * (time.perf_counter() - started)
