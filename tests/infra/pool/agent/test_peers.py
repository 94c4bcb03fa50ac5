"""Round trips to peers, whose addresses are what they said."""

import socket
import time

import pytest

from infra.pool.agent.config import location_of, split_address
from infra.pool.agent.errors import BadAddress, BadLocation
from infra.pool.agent.peers import Listener, Peers
from infra.pool.wire import Peer


def test_an_address_that_is_none_keeps_no_other_from_being_measured():
    with socket.create_server(("127.0.0.1", 0)) as server:
        good = f"127.0.0.1:{server.getsockname()[1]}"
        said = [f"{'a' * 64}:80", "..:80", f"127.0.0.1:{10**20}", "\0:1", ":", "x", good]
        peers = Peers("me", lambda: None)
        peers.members(
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


def test_an_address_and_a_place_are_taken_apart_or_refused():
    assert split_address("[::1]:80") == ("::1", 80) and split_address(":9") == ("", 9)
    assert split_address("") == ("", 0)
    for wrong in ("host", "host:0", "host:65536", "::1:80", "a b:1", "x:٣"):
        with pytest.raises(BadAddress, match="allowed is HOST:PORT"):
            split_address(wrong)
    place = location_of("48.14,-11.5")
    assert place is not None and (place.latitude, place.longitude) == (48.14, -11.5)
    for wrong in ("48", "91,0", "a,b", "nan,0"):
        with pytest.raises(BadLocation, match="allowed is LAT,LON"):
            location_of(wrong)


def test_a_port_that_is_taken_is_said():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(BadAddress, match="that is free"):
            Listener(f"127.0.0.1:{server.getsockname()[1]}")
