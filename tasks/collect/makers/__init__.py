"""Task makers: one module per kind, each with `make(seed, index, **knobs)` for one raw task row.

Invariants: a task depends on seed, index and knobs alone; its gold scores 1.0; with default knobs
the first 1,100 indices of any seed give at least 1,000 distinct prompts.
"""

from collections.abc import Callable
from typing import Any

from tasks.collect.makers import (
    ascii_tree_formatting,
    code_output_prediction,
    complex_json_output,
    formatask,
    git_diff,
    ifeval,
    pydantic_adherance,
    reverse_text,
    unscramble_sentence,
    verifiable_math,
)

MAKERS: dict[str, Callable[..., dict[str, Any]]] = {
    "ascii_tree_formatting": ascii_tree_formatting.make,
    "code_output_prediction": code_output_prediction.make,
    "complex_json_output": complex_json_output.make,
    "formatask": formatask.make,
    "git_diff": git_diff.make,
    "ifeval": ifeval.make,
    "pydantic_adherance": pydantic_adherance.make,
    "reverse_text": reverse_text.make,
    "unscramble_sentence": unscramble_sentence.make,
    "verifiable_math": verifiable_math.make,
}
