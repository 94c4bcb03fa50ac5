"""The pool's own certificate authority.

Its key lies in the user's config directory. The service gets a certificate for the names it is
reached by, made anew at each start. A node gets one for its own ed25519 key, the one that is its
identity, with its id in the subject and as `urn:tracemill:node:<id>`: with it two nodes know each
other on a direct link (mutual TLS 1.3), and no key is ever sent.

What uvicorn lets one bind: it can ask clients for certificates and check them against a CA, but
hands none of it to the application (its ASGI scope has no `tls` extension), so a request cannot be
tied to the certificate of its connection; and a node has no certificate before it has registered.
The service therefore asks for none. Who sends a request is known by its signature, and TLS is
transport: it keeps requests secret and shows the service to the nodes.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from infra.pool.service.errors import BadSetting
from toploc.signing import public_key

NODE_URN = "urn:tracemill:node:"
_CA_DAYS, _SERVER_DAYS, _NODE_DAYS = 3650, 397, 90
_EARLIER = datetime.timedelta(minutes=10)
"""Clocks differ."""


@dataclass(frozen=True)
class PoolCa:
    """Signs for one pool."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        """The certificate that clients trust."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def server_files(self, names: Sequence[str], directory: Path) -> tuple[Path, Path]:
        """Certificate and key for host names and IP addresses, written below a directory."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(names[0], _SERVER_DAYS).public_key(key.public_key())
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_name(name) for name in dict.fromkeys(names)]), False
        ).add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        certificate_file, key_file = directory / "server.pem", directory / "server.key"
        _write(certificate_file, self._sign(builder))
        _write(key_file, _pem(key))
        return certificate_file, key_file

    def node_certificate(self, node_id: str) -> str:
        """PEM of a certificate for the key that a node id spells."""
        builder = _builder(node_id, _NODE_DAYS).public_key(public_key(node_id))
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(NODE_URN + node_id)]), False
        ).add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            ),
            False,
        )
        return self._sign(builder).decode()

    def _sign(self, builder: x509.CertificateBuilder) -> bytes:
        signer = self.key.public_key()
        signed = (
            builder.issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), False)
            .sign(self.key, hashes.SHA256())
        )
        return signed.public_bytes(Encoding.PEM)


def load_ca(directory: Path) -> PoolCa:
    """The authority whose files are `ca.pem` and `ca.key` in a directory; made if there is none."""
    certificate_file, key_file = directory / "ca.pem", directory / "ca.key"
    if not key_file.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = _make_ca()
        _write(key_file, _pem(made.key))
        _write(certificate_file, made.pem.encode())
    if key_file.stat().st_mode & 0o077:
        raise BadSetting(f"{key_file} can be read by others: anybody could be the pool; remove it")
    key = load_pem_private_key(key_file.read_bytes(), None)
    certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    if not isinstance(key, ec.EllipticCurvePrivateKey) or (
        key.public_key() != certificate.public_key()
    ):
        raise BadSetting(f"{key_file} is not the key of {certificate_file}; remove both")
    return PoolCa(certificate, key)


def _make_ca() -> PoolCa:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder("Tracemill node pool", _CA_DAYS).public_key(key.public_key())
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        builder.issuer_name(_subject("Tracemill node pool"))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .add_extension(usage, True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(key, hashes.SHA256())
    )
    return PoolCa(certificate, key)


def _builder(common_name: str, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(common_name))
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _subject(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(file: Path, data: bytes) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "wb") as out:
        out.write(data)
    os.replace(temporary, file)
