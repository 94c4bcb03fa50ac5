"""Mutual TLS 1.3 on links between nodes of a pool that has a CA of its own.

A node shows the certificate that the pool signed for its ed25519 key, and takes no other. The
certificate and the CA's lie in files that only this user can read, anew with each registration; the
private key is written to none.
"""

import os
import ssl
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from infra.pool.service.tls import NODE_URN

NODE_CERTIFICATE = "TRACEMILL_NODE_CERTIFICATE"
"""Variable that names the file of the node's certificate (PEM)."""
POOL_CA = "TRACEMILL_PEERS_CA"
"""Variable that names the file of the certificate of the pool's CA (PEM)."""


class Links:
    """One node's; without a certificate, links are plain."""

    def __init__(self, key_file: Path, directory: Path):
        self._key_file, self._directory = key_file, directory
        self._environment: dict[str, str] = {}
        self.client: ssl.SSLContext | None = None
        self.server: ssl.SSLContext | None = None

    def renew(self, certificate: str, ca: str) -> None:
        """Take what the pool signed, PEM; empty texts where it has no CA."""
        if not certificate or not ca:
            return
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._environment = {
            NODE_CERTIFICATE: str(self._write("node.pem", certificate)),
            POOL_CA: str(self._write("ca.pem", ca)),
        }
        self.client = self._context(ssl.PROTOCOL_TLS_CLIENT, certificate, ca)
        self.server = self._context(ssl.PROTOCOL_TLS_SERVER, certificate, ca)

    def environment(self) -> dict[str, str]:
        """Where the files lie, for a process that has the node's key."""
        return dict(self._environment)

    def _write(self, name: str, text: str) -> Path:
        file = self._directory / name
        temporary = file.with_name(f".{name}.{os.getpid()}")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(handle, "w") as out:
            out.write(text)
        os.replace(temporary, file)
        return file

    def _context(self, side: "ssl._SSLMethod", certificate: str, ca: str) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the certificate names a node, see `shows`
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=ca)
        key = Ed25519PrivateKey.from_private_bytes(self._key_file.read_bytes())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        # OpenSSL reads files only; this one is in memory.
        with open(os.memfd_create("node"), "wb") as file:
            file.write(pem + certificate.encode())
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return context


def shows(line: ssl.SSLSocket, node_id: str) -> bool:
    """Whether the other side is this node."""
    names = (line.getpeercert() or {}).get("subjectAltName", ())
    return ("URI", NODE_URN + node_id) in names  # type: ignore[comparison-overlap]
