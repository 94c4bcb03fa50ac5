"""A directory in Hugging Face layout, read without loading the model.

Invariants: only safetensors count as weights; nothing in the directory is run; a file that is cut
or is not what its name says is refused here, before a run is planned with it.
"""

import json
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from infra.models.errors import ModelFilesMissing

MAX_HEADER = 100_000_000
"""Longest header of a safetensors file that the format's own reader takes."""
NEXT_STEP = (
    "Save the model there with save_pretrained (safetensors, not pickled weights) and its "
    "tokenizer with a chat template."
)
SUFFIXES = (".safetensors", ".json", ".jinja", ".model", ".txt")
"""Of weights, config, tokenizer and template; weights of other suffixes are pickles."""
SAMPLING_KEYS = {"temperature": float, "top_p": float, "top_k": int, "min_p": float}


@dataclass(frozen=True)
class Card:
    """What a directory says of its model."""

    description: str
    context_length: int
    parameters: int
    sampling: dict[str, Any]
    """The sampling settings of generation_config.json."""


def model_files(directory: Path) -> list[Path]:
    """The files that a copy of a model needs, by name; dot files and directories are none."""
    return sorted(
        path
        for path in directory.iterdir()
        if path.suffix in SUFFIXES and not path.name.startswith(".") and path.is_file()
    )


def check_complete(directory: Path, model_id: str) -> None:
    """Refuse a directory that lacks a file which generation needs, or holds a broken one."""
    missing = [
        name for name in ("config.json", "tokenizer.json") if not (directory / name).is_file()
    ]
    if not any(directory.glob("*.safetensors")):
        missing.append("*.safetensors")
    try:
        if not _has_chat_template(directory):
            missing.append("chat_template.jinja")
        if missing:
            raise ModelFilesMissing(model_id, f"{directory} has no {', '.join(missing)}", NEXT_STEP)
        _context_length(directory / "config.json")
        _sampling(directory / "generation_config.json")
        for path in directory.glob("*.safetensors"):
            _parameters(path)
    except _Broken as broken:
        raise _refusal(model_id, broken) from broken


def read_card(directory: Path, model_id: str) -> Card:
    """Description, context length, parameter count and sampling defaults."""
    check_complete(directory, model_id)
    config = directory / "config.json"
    try:
        return Card(
            description=_description(directory / "README.md", directory.name),
            context_length=_context_length(config),
            parameters=sum(_parameters(path) for path in directory.glob("*.safetensors")),
            sampling=_sampling(directory / "generation_config.json"),
        )
    except _Broken as broken:
        raise _refusal(model_id, broken) from broken


class _Broken(ValueError):
    """A file that is there and cannot be used."""

    def __init__(self, path: Path, what: str):
        super().__init__(f"{path} is broken: {what}")


def _refusal(model_id: str, broken: _Broken) -> ModelFilesMissing:
    return ModelFilesMissing(model_id, str(broken), f"Copy the file again. {NEXT_STEP}")


def _has_chat_template(directory: Path) -> bool:
    if (directory / "chat_template.jinja").is_file():
        return True
    settings = directory / "tokenizer_config.json"
    return settings.is_file() and bool(_json(settings).get("chat_template"))


def _json(path: Path) -> dict[str, Any]:
    return _object(path, path.read_bytes(), "it")


def _object(path: Path, data: bytes, what: str) -> dict[str, Any]:
    try:
        read = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _Broken(path, f"{what} is not JSON ({error}; {len(data)} bytes)") from error
    if not isinstance(read, dict):
        raise _Broken(path, f"{what} is a JSON {type(read).__name__}, not an object")
    return read


def _context_length(path: Path) -> int:
    value = _json(path).get("max_position_embeddings")
    if not isinstance(value, int) or value < 1:
        raise _Broken(path, f"max_position_embeddings is {value!r}, not a positive whole number")
    return value


def _parameters(path: Path) -> int:
    """Numbers in a safetensors file, from its header; the file must be as long as that says."""
    size = path.stat().st_size
    with path.open("rb") as handle:
        head = handle.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= min(MAX_HEADER, size - 8):
            raise _Broken(path, f"{size} bytes cannot hold a header of {length} bytes")
        header = _object(path, handle.read(length), "its header")
    numbers, end = 0, 0
    for name, entry in header.items():
        if name != "__metadata__":
            try:
                numbers += prod(int(side) for side in entry["shape"])
                start, stop = (int(offset) for offset in entry["data_offsets"])
            except (KeyError, TypeError, ValueError) as error:
                raise _Broken(path, f"no shape or offsets of tensor {name[:80]!r}") from error
            if not 0 <= start <= stop:
                raise _Broken(path, f"tensor {name[:80]!r} is at bytes {start} to {stop}")
            end = max(end, stop)
    if size != 8 + length + end:
        raise _Broken(
            path, f"{size} bytes, its header says {8 + length + end}; the file was cut or changed"
        )
    return numbers


def _description(readme: Path, fallback: str) -> str:
    """The first line of prose of a model card: after front matter and headings."""
    if not readme.is_file():
        return fallback
    text = readme.read_text(encoding="utf-8", errors="replace")
    if text.startswith("---\n"):
        text = text.partition("\n---\n")[2]
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line and not line.startswith("#")), fallback)


def _sampling(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    settings = _json(path)
    try:
        return {
            key: kind(settings[key])
            for key, kind in SAMPLING_KEYS.items()
            if settings.get(key) is not None
        }
    except (TypeError, ValueError) as error:
        raise _Broken(path, f"a sampling setting is no number ({error})") from error
