"""A model directory's revision: a hash over everything that decides its tokens.

Invariants: the same files and compute dtype give the same revision on every machine; where the
directory lies, and what other files it holds, does not matter. Hashing is repeated only when a
file's size or time has changed; what is remembered lies in the user's cache, so that a directory
may be read-only.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from infra.models.cache import cache_root

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
CONFIG_FILES = ("config.json", "generation_config.json")
INCIDENTAL = ("transformers_version", "_name_or_path", "name_or_path")
"""Config keys that say where a file came from, not what the model computes."""


def directory_revision(directory: Path, dtype: str) -> str:
    """32 hex characters over weights, tokenizer, chat template, config and compute dtype."""
    files = hashed_files(directory)
    stamp = {path.name: [(found := path.stat()).st_size, found.st_mtime_ns] for path in files} | {
        "dtype": dtype
    }
    place = hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:32]
    note = cache_root() / "revisions" / f"{place}-{dtype}.json"
    remembered = _read_note(note)
    if remembered and remembered.get("files") == stamp:
        return str(remembered["revision"])
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}\0{_file_hash(path)}\n".encode())
    digest.update(f"dtype\0{dtype}\n".encode())
    revision = digest.hexdigest()[:32]
    _write_note(note, {"files": stamp, "revision": revision})
    return revision


def hashed_files(directory: Path) -> list[Path]:
    """The files that make up the revision, in order of name."""
    names = {*TOKENIZER_FILES, *CONFIG_FILES}
    return sorted(
        path
        for path in directory.iterdir()
        if path.name in names or path.name.endswith((".safetensors", ".safetensors.index.json"))
    )


def _file_hash(path: Path) -> str:
    if path.name in CONFIG_FILES:
        settings = json.loads(path.read_bytes())
        kept = {key: value for key, value in settings.items() if key not in INCIDENTAL}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _read_note(note: Path) -> dict[str, Any] | None:
    try:
        read = json.loads(note.read_bytes())
    except (OSError, ValueError):
        return None
    return read if isinstance(read, dict) else None


def _write_note(note: Path, content: dict[str, Any]) -> None:
    note.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=note.parent, delete=False) as handle:
        json.dump(content, handle)
    os.replace(handle.name, note)
