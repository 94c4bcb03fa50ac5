"""Secrets of the trusted side: files of the user's config directory, made at the first use.

Invariants: a secret is random, readable by its owner alone, written once and as a whole; it never
lies below a storage root, where nodes write and from which datasets are published.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from infra.storage.errors import AccessDenied, BadPath
from infra.storage.store import Store

SECRET_BYTES = 32


def config_dir() -> Path:
    """The user's directory of keys and tokens."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "tracemill"


def shared_secret(name: str, store: Store) -> bytes:
    """32 random bytes that stay the same for this user; `store` is where they must not lie."""
    path = config_dir() / name
    root = store.local_path("x")
    if root is not None and path.resolve().is_relative_to(root.parent.resolve()):
        raise BadPath(
            f"secret {path} would lie below the storage root {store.root}, which nodes and readers "
            "of datasets see; set XDG_CONFIG_HOME to a directory outside of it"
        )
    if not path.exists():
        _create(path)
    if path.stat().st_mode & 0o077:
        raise AccessDenied(
            f"secret {path} can be read by others; remove it, a new one is made at the next start"
        )
    found = path.read_bytes()
    if len(found) != SECRET_BYTES:
        raise BadPath(f"secret {path} has {len(found)} bytes, not {SECRET_BYTES}; remove it")
    return found


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "wb") as file:
        file.write(secrets.token_bytes(SECRET_BYTES))
    try:
        os.link(temporary, path)  # of two processes at once, one makes it
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
