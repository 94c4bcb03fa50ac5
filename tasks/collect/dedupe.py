"""Duplicates by normalised prompt: of tasks with one prompt, the first stays."""

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence


def prompt_key(prompt: Sequence[Mapping[str, str]]) -> bytes:
    """Digest of the prompt without differences of width, case and white space."""
    digest = hashlib.sha256()
    for message in prompt:
        text = unicodedata.normalize("NFKC", message["content"]).casefold()
        digest.update(f"{message['role']}\x00{' '.join(text.split())}\x00".encode())
    return digest.digest()
