"""File digests."""

import hashlib
from pathlib import Path


def sha256sum(filename: str | Path, chunk_size: int = 65536) -> str:
    """SHA-256 of a file, as hex."""
    digest = hashlib.sha256()
    with open(filename, "rb") as file:
        while chunk := file.read(chunk_size):
            digest.update(chunk)
    return digest.hexdigest()
