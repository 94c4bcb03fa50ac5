"""Round trips to peers, whose addresses are what they said."""

import socket
import time

from infra.pool.agent.peers import Peers
from infra.pool.wire import Peer


def test_an_address_that_is_none_keeps_no_other_from_being_measured():
    with socket.create_server(("127.0.0.1", 0)) as server:
        good = f"127.0.0.1:{server.getsockname()[1]}"
        said = [f"{'a' * 64}:80", "..:80", f"127.0.0.1:{10**20}", "\0:1", ":", "x", good]
        peers = Peers(
            [
                Peer(node_id=str(number), p2p_id="", p2p_addresses=[], address=address)
                for number, address in enumerate(said)
            ]
        )
        deadline = time.monotonic() + 60
        while "6" not in peers.rtt_ms() and time.monotonic() < deadline:
            time.sleep(0.01)
        peers.close()
    assert set(peers.rtt_ms()) == {"6"}
