"""Ids, specs, errors."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.models import registry, smollm2
from infra.models.errors import ModelFilesMissing, UnknownModel


def test_known_ids() -> None:
    assert registry.known() == (
        "tracemill/nano-s",
        "tracemill/nano-m",
        "tracemill/nano-l",
        "tracemill/nano-rl",
        "tracemill/nano-rl-lengths",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
    )


def test_spec_of_smollm2_needs_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "PACKAGE", "llm-not-there")
    spec = registry.get("HuggingFaceTB/SmolLM2-135M-Instruct")
    assert spec.context_length == 8192 and spec.dtype == "float32"


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("tracemill/nano-x", "tracemill/nano-"),
        ("SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("huggingfacetb/smollm2-135m-instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
    ],
)
def test_unknown_id_names_the_nearest(given: str, nearest: str) -> None:
    for ask in (registry.get, registry.materialise, registry.revision):
        with pytest.raises(UnknownModel, match=f"did you mean '{nearest}"):
            ask(given)


def test_unlike_id_names_all() -> None:
    with pytest.raises(UnknownModel, match=r"tracemill/nano-s, .*local directory") as caught:
        registry.get("Qwen/Qwen3-4B-Thinking")
    assert "did you mean" not in str(caught.value)
    assert not caught.value.retryable


def test_directory_is_an_id(tiny_model: Path, tmp_path: Path) -> None:
    directory = tmp_path / "mine"
    shutil.copytree(tiny_model, directory)
    (directory / "README.md").write_text(
        "---\nlicense: mit\n---\n# Mine\n\nA model of mine.\nMore."
    )
    (directory / "generation_config.json").write_text('{"temperature": 0.6, "top_k": 20}')
    spec = registry.get(str(directory))
    assert registry.materialise(str(directory)) == directory
    assert (spec.description, spec.source, spec.context_length) == (
        "A model of mine.",
        "directory",
        256,
    )
    assert (spec.sampling.temperature, spec.sampling.top_k, spec.sampling.top_p) == (0.6, 20, 1.0)
    # embeddings and head, two layers of attention and MLP, norms
    assert spec.parameters == 2 * 262 * 128 + 2 * (128 * (128 * 2 + 64 * 2 + 256 * 3 + 2)) + 128


@pytest.mark.parametrize("gone", ["config.json", "tokenizer.json", "model.safetensors"])
def test_incomplete_directory_is_refused(tiny_model: Path, tmp_path: Path, gone: str) -> None:
    directory = tmp_path / "mine"
    shutil.copytree(tiny_model, directory)
    (directory / gone).unlink()
    with pytest.raises(ModelFilesMissing, match=gone.removeprefix("model").replace(".", r"\.")):
        registry.materialise(str(directory))


@pytest.mark.parametrize(
    ("name", "change", "found"),
    [
        ("config.json", lambda data: data[:40], "not JSON"),
        ("config.json", lambda data: b"[]", "JSON list"),
        ("model.safetensors", lambda data: data[:-1], "cut or changed"),
        ("model.safetensors", lambda data: data + b"x", "cut or changed"),
        ("model.safetensors", lambda data: data[:100], "cannot hold a header"),
        ("model.safetensors", lambda data: data[:5], "cannot hold a header"),
        ("model.safetensors", lambda data: b"", "cannot hold a header"),
        ("model.safetensors", lambda data: b"\xff" * 8 + data[8:], "cannot hold a header"),
        ("model.safetensors", lambda data: data[:8] + b"!" + data[9:], "header is not JSON"),
        ("model.safetensors", lambda data: data.replace(b'"shape"', b'"shaqe"', 1), "no shape"),
    ],
)
def test_broken_file_is_refused(
    tiny_model: Path, tmp_path: Path, name: str, change: Callable[[bytes], bytes], found: str
) -> None:
    directory = tmp_path / "mine"
    shutil.copytree(tiny_model, directory)
    file = directory / name
    file.write_bytes(change(file.read_bytes()))
    for ask in (registry.get, registry.materialise, registry.revision):
        with pytest.raises(ModelFilesMissing, match=rf"{re.escape(name)} is broken: .*{found}"):
            ask(str(directory))


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("config.json", "{}", "max_position_embeddings is None"),
        ("generation_config.json", "{", "not JSON"),
        ("generation_config.json", '{"top_k": "many"}', "no number"),
    ],
)
def test_settings_that_cannot_be_read_are_refused(
    tiny_model: Path, tmp_path: Path, name: str, text: str, found: str
) -> None:
    directory = tmp_path / "mine"
    shutil.copytree(tiny_model, directory)
    (directory / name).write_text(text)
    with pytest.raises(ModelFilesMissing, match=rf"{re.escape(name)} is broken: .*{found}"):
        registry.materialise(str(directory))


def test_directory_without_chat_template_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    directory = tmp_path / "mine"
    shutil.copytree(tiny_model, directory)
    (directory / "chat_template.jinja").unlink()
    with pytest.raises(ModelFilesMissing, match="chat_template"):
        registry.materialise(str(directory))
