"""What changes a revision, and what does not."""

import json
import os
import shutil
from pathlib import Path

import pytest

from infra.models import revision
from infra.models.revision import directory_revision


@pytest.fixture
def directory(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRACEMILL_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def test_same_files_elsewhere_have_the_same_revision(directory: Path, tmp_path: Path) -> None:
    first = directory_revision(directory, "float32")
    assert len(first) == 32 and int(first, 16) >= 0
    copied = Path(shutil.copytree(directory, tmp_path / "copy"))
    (copied / "README.md").write_text("other words")
    assert directory_revision(copied, "float32") == first


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "tokenizer.json", "chat_template.jinja", "tokenizer_config.json"],
)
def test_one_byte_changes_it(directory: Path, name: str) -> None:
    first = directory_revision(directory, "float32")
    path = directory / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert directory_revision(directory, "float32") != first


def test_dtype_and_config_change_it_and_library_version_does_not(directory: Path) -> None:
    first = directory_revision(directory, "float32")
    assert directory_revision(directory, "bfloat16") != first
    path = directory / "config.json"
    config = json.loads(path.read_bytes())
    path.write_text(json.dumps(config | {"transformers_version": "9.9", "_name_or_path": "x"}))
    assert directory_revision(directory, "float32") == first
    path.write_text(json.dumps(config | {"rms_norm_eps": 0.5}))
    assert directory_revision(directory, "float32") != first


def test_it_is_hashed_once_until_a_file_changes(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    real = revision._file_hash

    def counting(path: Path) -> str:
        hashed.append(path.name)
        return real(path)

    monkeypatch.setattr(revision, "_file_hash", counting)
    first = directory_revision(directory, "float32")
    count = len(hashed)
    assert count >= 4
    assert directory_revision(directory, "float32") == first and len(hashed) == count
    os.utime(directory / "model.safetensors", ns=(1, 1))
    assert directory_revision(directory, "float32") == first and len(hashed) == 2 * count


def test_unreadable_note_is_ignored(directory: Path, tmp_path: Path) -> None:
    first = directory_revision(directory, "float32")
    (note,) = (tmp_path / "cache" / "models" / "revisions").glob("*.json")
    note.write_text("{broken")
    assert directory_revision(directory, "float32") == first
