"""Settings of the makers that small models can solve now and then.

The near misses live beside the tests and are imported by name.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

from verifiers.sandbox import availability

sys.path.insert(0, str(Path(__file__).parent))

EASY: dict[str, dict[str, Any]] = {
    "ascii_tree_formatting": {"min_nodes": 2, "max_nodes": 3, "depth": 1},
    "code_output_prediction": {"kind": "steps", "steps": 1},
    "complex_json_output": {"level": 1, "size": 2},
    "formatask": {"task": "copy", "words": 1, "extra_sentences": 0, "answers": "single"},
    "git_diff": {"level": 1},
    "ifeval": {"constraint": "plain", "size": 1},
    "pydantic_adherance": {"depth": 0, "fields": 2, "easy": True},
    "reverse_text": {"min_words": 1, "max_words": 1},
    "unscramble_sentence": {"min_sentences": 3, "max_sentences": 3, "story": "clock"},
    "verifiable_math": {"level": 1},
}


@pytest.fixture
def easy() -> dict[str, dict[str, Any]]:
    return EASY


@pytest.fixture
def sandbox() -> None:
    works, why_not = availability()
    if not works:
        pytest.skip(f"no sandbox here: {why_not}")
