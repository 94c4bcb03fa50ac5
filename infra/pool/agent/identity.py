"""The node's key of a pool: 32 secret bytes in the user's config directory, made when it joins."""

import hashlib
import os
import secrets
from pathlib import Path
from urllib.parse import urlsplit

from infra.pool.agent.errors import BadKeyFile
from toploc.signing import SigningKey

NODE_KEY = "TRACEMILL_NODE_KEY"
"""Variable that names the key's file to a process that signs with it."""
_BYTES = 32


def config_dir() -> Path:
    """Where keys and the list of images lie: never below anything that is published."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "tracemill"


def key_of_pool(url: str) -> Path:
    """Where the key for a pool lies; another pool gets another one.

    What a node signs names no pool, so one that lies could hand on to another what it was sent.
    """
    return (
        config_dir() / f"node-{hashlib.sha256(urlsplit(url).netloc.encode()).hexdigest()[:16]}.key"
    )


def load_key(path: Path) -> SigningKey:
    """The key of a file, which is made if it is not there; others must not be able to read it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    else:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
            file.flush()
            os.fsync(file.fileno())
    if path.stat().st_mode & 0o077:
        raise BadKeyFile(f"key {path} can be read by others; chmod 600 it, or move it away")
    secret = path.read_bytes()
    if len(secret) != _BYTES:
        raise BadKeyFile(
            f"key {path} has {len(secret)} bytes, a key has {_BYTES}; move it away, a new one is "
            "made (as another node)"
        )
    return SigningKey(secret)


def p2p_seed(path: Path) -> int:
    """The node's seed for its link to the next stage: 64 bits that follow from its key alone."""
    digest = hashlib.sha256(b"tracemill-p2p" + path.read_bytes()).digest()
    return int.from_bytes(digest[:8], "big")
