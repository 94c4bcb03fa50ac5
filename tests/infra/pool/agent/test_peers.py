"""Round trips to peers, whose addresses are what they said."""

import socket
import time
from pathlib import Path

import pytest

from infra.pool.agent.config import location_of, split_address
from infra.pool.agent.errors import BadAddress, BadLocation
from infra.pool.agent.identity import load_key
from infra.pool.agent.links import NODE_CERTIFICATE, POOL_CA, Links
from infra.pool.agent.peers import Listener, Peers
from infra.pool.service.tls import load_ca
from infra.pool.wire import Peer


def test_an_address_that_is_none_keeps_no_other_from_being_measured(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        good = f"127.0.0.1:{server.getsockname()[1]}"
        said = [f"{'a' * 64}:80", "..:80", f"127.0.0.1:{10**20}", "\0:1", ":", "x", good]
        peers = Peers("me", Links(tmp_path / "key", tmp_path), lambda: None)
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


def test_a_port_that_is_taken_is_said(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(BadAddress, match="that is free"):
            Listener(f"127.0.0.1:{server.getsockname()[1]}", Links(tmp_path / "key", tmp_path))


def test_where_the_pool_has_a_ca_only_its_nodes_are_measured(tmp_path):
    """One shows no certificate, one that of another pool, one that of another node."""
    ours, other = load_ca(tmp_path / "ours"), load_ca(tmp_path / "other")

    def node(name: str, ca=None) -> tuple[str, Links]:
        key_file = tmp_path / f"{name}.key"
        node_id = load_key(key_file).node_id
        links = Links(key_file, tmp_path / f"{name}-links")
        if ca is not None:
            links.renew(ca.node_certificate(node_id), ca.pem)
        return node_id, links

    my_id, mine = node("me", ours)
    for name in (NODE_CERTIFICATE, POOL_CA):
        assert Path(mine.environment()[name]).stat().st_mode & 0o777 == 0o600
    listeners, peers = [], []
    for name, ca in (("plain", None), ("foreign", other), ("liar", ours), ("good", ours)):
        node_id, links = node(name, ca)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        listeners.append(Listener(address, links))
        said = "ab" * 32 if name == "liar" else node_id
        peers.append(Peer(node_id=said, p2p_id="", p2p_addresses=[], address=address))
    measuring = Peers(my_id, mine, lambda: None)
    measuring.members(peers)
    deadline = time.monotonic() + 60
    good = peers[-1].node_id
    while good not in measuring.rtt_ms() and time.monotonic() < deadline:
        time.sleep(0.01)
    measuring.close()
    time.sleep(0.5)
    for listener in listeners:
        listener.close()
    assert set(measuring.rtt_ms()) == {good}
