"""Round trips to other nodes, as the time that a TCP connection takes to open.

Measured are the members of the node's group, every few seconds, and some candidates for a group
that the service names, once a minute. Each node listens for such connections at the address that
it registered, and closes them at once. A member that was reached before and fails several times in
a row is lost: the pool hears of it at once, and believes it when it does not hear from that node
either.

Where the pool has a CA, both sides show a certificate of it for their own key: who does not is not
measured. The time is that of the connection alone.
"""

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from infra.pool.agent.config import split_address
from infra.pool.agent.errors import BadAddress
from infra.pool.agent.links import Links, shows
from infra.pool.wire import Peer

TIMEOUT = 2.0
ROUND = 3.0
"""Seconds between two looks at the members."""
CANDIDATES = 60.0
LOST_AFTER = 3
"""Failures in a row."""
AT_ONCE = 16
MOST = 64
"""Round trips that a heartbeat takes along."""


class Peers:
    """Measures in a thread of its own until it is closed."""

    def __init__(self, node_id: str, links: Links, changed: Callable[[], None]):
        """`changed` is called when the pool should hear of a lost member."""
        self._node_id, self._links, self._changed = node_id, links, changed
        self._members: list[Peer] = []
        self._candidates: list[Peer] = []
        self._measured: dict[str, float] = {}
        self._failures: Counter[str] = Counter()
        self._news = threading.Condition()
        self._ended = False
        threading.Thread(target=self._run, daemon=True).start()

    def members(self, members: Sequence[Peer]) -> None:
        """Who is in the node's group now."""
        with self._news:
            self._members = self._others(members)
            self._news.notify()

    def candidates(self, candidates: Sequence[Peer]) -> None:
        """Who could be."""
        others = self._others(candidates)
        with self._news:
            if others != self._candidates:
                self._candidates = others
                self._news.notify()

    def _others(self, peers: Sequence[Peer]) -> list[Peer]:
        return [
            peer for peer in peers
            if peer.node_id != self._node_id and _place(peer) is not None
        ]  # fmt: skip

    def rtt_ms(self) -> dict[str, float]:
        """Milliseconds by node, the newest last; those that were never reached are absent."""
        return dict(list(self._measured.copy().items())[-MOST:])

    def lost(self) -> list[str]:
        """Members that could be reached before, and cannot any more."""
        return [
            peer.node_id for peer in self._members
            if peer.node_id in self._measured and self._failures[peer.node_id] >= LOST_AFTER
        ]  # fmt: skip

    def close(self) -> None:
        """Measure no more."""
        with self._news:
            self._ended = True
            self._news.notify()

    def _run(self) -> None:
        known: list[Peer] = []
        at = 0.0
        with ThreadPoolExecutor(AT_ONCE) as threads:
            while not self._ended:
                wanted = list(self._members)
                if self._candidates != known or time.monotonic() > at + CANDIDATES:
                    known, at = self._candidates, time.monotonic()
                    wanted += known
                before = self.lost()
                list(threads.map(self._look, {peer.node_id: peer for peer in wanted}.values()))
                if set(self.lost()) - set(before):
                    self._changed()
                with self._news:
                    if not self._ended and self._candidates == known:
                        self._news.wait(ROUND)

    def _look(self, peer: Peer) -> None:
        taken = _connect(peer, self._links)
        if taken is None:
            self._failures[peer.node_id] += 1
            return
        self._failures[peer.node_id] = 0
        self._measured.pop(peer.node_id, None)
        self._measured[peer.node_id] = taken
        while len(self._measured) > 4 * MOST:
            self._measured.pop(next(iter(self._measured)), None)


class Listener:
    """Takes the connections by which other nodes measure their way here."""

    def __init__(self, address: str, links: Links):
        """`address` is HOST:PORT; where HOST is not one of this machine, it is a router's."""
        host, port = split_address(address)
        self._socket, self._links = _bound(host, port), links
        self._free = threading.Semaphore(AT_ONCE)
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except ConnectionAbortedError:
                continue
            except OSError:
                return
            if self._links.server is None or not self._free.acquire(blocking=False):
                connection.close()
            else:
                threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        assert self._links.server is not None
        try:
            with connection, contextlib.suppress(OSError):
                connection.settimeout(TIMEOUT)
                self._links.server.wrap_socket(connection, server_side=True).close()
        finally:
            self._free.release()


def _bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        if host:
            with contextlib.suppress(OSError):
                return socket.create_server((host, port), family=family)
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise BadAddress(f"{host}:{port}", str(error)) from error


def _place(peer: Peer) -> tuple[str, int] | None:
    host, _, port = peer.address.rpartition(":")
    return (host, int(port)) if host and port.isdecimal() and int(port) else None


def _connect(peer: Peer, links: Links) -> float | None:
    place = _place(peer)
    assert place is not None
    started = time.perf_counter()
    try:
        with socket.create_connection(place, TIMEOUT) as connection:
            taken = 1000.0 * (time.perf_counter() - started)
            if links.client is None:
                return taken
            with links.client.wrap_socket(connection) as line:
                return taken if shows(line, peer.node_id) else None
    except (OSError, ValueError, OverflowError):
        # Another node said what its address is; it need not be one.
        return None
