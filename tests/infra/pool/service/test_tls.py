import contextlib
import socket
import ssl
import threading

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from infra.pool.errors import PoolError
from infra.pool.service.tls import NODE_URN, load_ca
from toploc.signing import SigningKey


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None):
    """(what the client sees of the server, what the server sees of the client)."""
    left, right = socket.socketpair()
    seen: list[object] = []

    def serve() -> None:
        try:
            with server.wrap_socket(left, server_side=True) as line:
                line.recv(1)
                seen.append(line.getpeercert())
        except ssl.SSLError as error:
            seen.append(error)
            left.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(right, server_hostname=name) as line:
            theirs = line.getpeercert()
            # Where the server refuses us, TLS 1.3 says so after our side of the handshake.
            with contextlib.suppress(OSError):
                line.sendall(b"x")
    finally:
        right.close()
        thread.join()
    return theirs, seen[0]


def node_context(tmp_path, ca, side):
    """The context of a peer with a certificate for its own ed25519 key, and its node id."""
    secret = Ed25519PrivateKey.generate()
    node_id = SigningKey(secret.private_bytes_raw()).node_id
    file = tmp_path / f"{node_id}.pem"
    pem = secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(pem + ca.node_certificate(node_id).encode())
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(file)
    context.load_verify_locations(cadata=ca.pem)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    return context, node_id


def test_the_service_shows_the_pools_certificate(tmp_path):
    ca = load_ca(tmp_path / "ca")
    files = ca.server_files(["pool.example", "127.0.0.1"], tmp_path / "ca")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*files)
    trusting = ssl.create_default_context(cadata=load_ca(tmp_path / "ca").pem)
    for name in ("pool.example", "127.0.0.1"):
        theirs, _ = handshake(server, trusting, name)
        assert ("IP Address", "127.0.0.1") in theirs["subjectAltName"]
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, trusting, "other.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, ssl.create_default_context(), "pool.example")
    other = load_ca(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, ssl.create_default_context(cadata=other.pem), "pool.example")


def test_two_nodes_know_each_other_by_their_keys(tmp_path):
    ca = load_ca(tmp_path / "ca")
    server, server_id = node_context(tmp_path, ca, ssl.PROTOCOL_TLS_SERVER)
    client, client_id = node_context(tmp_path, ca, ssl.PROTOCOL_TLS_CLIENT)
    theirs, ours = handshake(server, client, None)
    assert theirs["subjectAltName"] == (("URI", NODE_URN + server_id),)
    assert ours["subjectAltName"] == (("URI", NODE_URN + client_id),)
    foreign, _ = node_context(tmp_path, load_ca(tmp_path / "other"), ssl.PROTOCOL_TLS_CLIENT)
    foreign.load_verify_locations(cadata=ca.pem)
    _, seen = handshake(server, foreign, None)
    assert isinstance(seen, ssl.SSLError)


def test_a_key_that_others_can_read_is_refused(tmp_path):
    load_ca(tmp_path)
    (tmp_path / "ca.key").chmod(0o644)
    with pytest.raises(PoolError, match="read by others"):
        load_ca(tmp_path)
