"""A directory in Hugging Face layout, read without loading the model.

Invariants: only safetensors count as weights; nothing in the directory is run.
"""

import json
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from infra.models.errors import ModelFilesMissing

SAMPLING_KEYS = {"temperature": float, "top_p": float, "top_k": int, "min_p": float}


@dataclass(frozen=True)
class Card:
    """What a directory says of its model."""

    description: str
    context_length: int
    parameters: int
    sampling: dict[str, Any]
    """The sampling settings of generation_config.json."""


def check_complete(directory: Path, model_id: str) -> None:
    """Refuse a directory that lacks a file which generation needs."""
    missing = [
        name for name in ("config.json", "tokenizer.json") if not (directory / name).is_file()
    ]
    if not any(directory.glob("*.safetensors")):
        missing.append("*.safetensors")
    if not _has_chat_template(directory):
        missing.append("chat_template.jinja")
    if missing:
        raise ModelFilesMissing(
            model_id,
            f"{directory} has no {', '.join(missing)}",
            "Save the model there with save_pretrained (safetensors, not pickled weights) and its "
            "tokenizer with a chat template.",
        )


def read_card(directory: Path, model_id: str) -> Card:
    """Description, context length, parameter count and sampling defaults."""
    check_complete(directory, model_id)
    config = _json(directory / "config.json")
    return Card(
        description=_description(directory / "README.md", directory.name),
        context_length=int(config["max_position_embeddings"]),
        parameters=sum(_parameters(path) for path in directory.glob("*.safetensors")),
        sampling=_sampling(directory / "generation_config.json"),
    )


def _has_chat_template(directory: Path) -> bool:
    if (directory / "chat_template.jinja").is_file():
        return True
    settings = directory / "tokenizer_config.json"
    return settings.is_file() and bool(_json(settings).get("chat_template"))


def _json(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_bytes())
    return read


def _parameters(path: Path) -> int:
    """Numbers in a safetensors file, from its header."""
    with path.open("rb") as handle:
        (size,) = struct.unpack("<Q", handle.read(8))
        header = json.loads(handle.read(size))
    return sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


def _description(readme: Path, fallback: str) -> str:
    """The first line of prose of a model card: after front matter and headings."""
    if not readme.is_file():
        return fallback
    text = readme.read_text(encoding="utf-8")
    if text.startswith("---\n"):
        text = text.partition("\n---\n")[2]
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line and not line.startswith("#")), fallback)


def _sampling(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    settings = _json(path)
    return {
        key: kind(settings[key])
        for key, kind in SAMPLING_KEYS.items()
        if settings.get(key) is not None
    }
