"""Ed25519 identities: a node's name is its public key.

Invariants: a node id is the 64 lower-case hex digits of a public key that is canonically encoded
and not of small order (else one key would have two names, or its signatures would fit any message);
a signature is 64 bytes; what does not meet this never verifies. Only digests with a domain
(`toploc.transcript.digest`) are signed. A private key leaves its object in no way: no `repr`, no
pickle, no file. A node that keeps its identity makes it from 32 secret bytes that it keeps itself.
"""

import re
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from toploc.errors import MalformedKey

SIGNATURE_BYTES = 64
_KEY_BYTES = 32
_HEX_KEY = re.compile(r"[0-9a-f]{64}")
_FIELD = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = frozenset({0, 1, _FIELD - 1, _ORDER_8, _FIELD - _ORDER_8})
"""The y coordinates of the eight points whose order divides 8."""


class SigningKey:
    """The private key of a node, from 32 secret bytes."""

    __slots__ = ("_key", "node_id")

    def __init__(self, secret: bytes) -> None:
        if len(secret) != _KEY_BYTES:
            raise MalformedKey(
                f"a private key has {_KEY_BYTES} bytes, this one {len(secret)}; make a new one "
                "with SigningKey.generate()"
            )
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        self.node_id = self._key.public_key().public_bytes_raw().hex()

    @classmethod
    def generate(cls) -> "SigningKey":
        """A new key, known to nobody else."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    def sign(self, digest: bytes) -> bytes:
        """64 bytes that `verify` takes for this digest and this node's id."""
        return self._key.sign(digest)

    def __repr__(self) -> str:
        return f"SigningKey(node_id={self.node_id!r})"

    def __reduce__(self) -> str:
        raise TypeError("a private key is not pickled; let each process make or load its own")


def public_key(node_id: str) -> Ed25519PublicKey:
    """The public key that a node id spells; refuses what is no id."""
    if not isinstance(node_id, str) or not _HEX_KEY.fullmatch(node_id):
        raise MalformedKey(
            f"node id {str(node_id)[:80]!r} is not a public key; it is 64 lower-case hex digits"
        )
    return _parsed(node_id)


@lru_cache(1 << 16)
def _parsed(node_id: str) -> Ed25519PublicKey:
    raw = bytes.fromhex(node_id)
    y = int.from_bytes(raw, "little") & (2**255 - 1)
    if y >= _FIELD or y in _SMALL_ORDER:
        raise MalformedKey(
            f"node id {node_id} is no key that can identify a node (not canonical, or of small "
            "order); make one with SigningKey.generate()"
        )
    return Ed25519PublicKey.from_public_bytes(raw)


def verify(node_id: str, digest: bytes, signature: bytes | None) -> bool:
    """Whether the node signed the digest. False for anything that is no id or no signature."""
    if not isinstance(signature, bytes) or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        public_key(node_id).verify(signature, digest)
    except (InvalidSignature, MalformedKey):
        return False
    return True
