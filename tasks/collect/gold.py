"""Gold completions of rows that carry only their truth, as the public data does."""

import json
from collections.abc import Callable, Mapping
from typing import Any


def _boxed(info: Mapping[str, Any]) -> str | None:
    truth = info.get("ground_truth")
    if isinstance(truth, list):
        truth = truth[0] if truth else None
    if isinstance(truth, bool) or not isinstance(truth, str | int | float):
        return None
    return f"\\boxed{{{truth}}}"


def _json_key(key: str, wrap: str = "") -> Callable[[Mapping[str, Any]], str | None]:
    def gold(info: Mapping[str, Any]) -> str | None:
        if key not in info:
            return None
        return json.dumps({wrap: info[key]} if wrap else info[key], ensure_ascii=False)

    return gold


def _tagged(key: str, tag: str, line_break: str = "") -> Callable[[Mapping[str, Any]], str | None]:
    def gold(info: Mapping[str, Any]) -> str | None:
        truth = info.get(key)
        if not isinstance(truth, str):
            return None
        return f"<{tag}>{line_break}{truth}{line_break}</{tag}>"

    return gold


def _formatask(info: Mapping[str, Any]) -> str | None:
    numbers = ["1", "2"] if "ground_truth1" in info else [""]
    truths = [info.get(f"ground_truth{n}") for n in numbers]
    if not all(isinstance(truth, str) for truth in truths):
        return None
    return "\n".join(
        f"<extracted_formatted{n}>{truth}</extracted_formatted{n}>"
        for n, truth in zip(numbers, truths, strict=True)
    )


def _diff(info: Mapping[str, Any]) -> str | None:
    golden = info.get("golden_diff")
    return f"```diff\n{golden}\n```" if isinstance(golden, str) else None


def _reasoning_gym(info: Mapping[str, Any]) -> str | None:
    entry = info.get("reasoning_gym_entry")
    try:
        parsed = json.loads(entry) if isinstance(entry, str) else None
    except (ValueError, RecursionError):
        return None
    answer = parsed.get("answer") if isinstance(parsed, dict) else None
    return f"<answer>{answer}</answer>" if isinstance(answer, str) else None


_RULES: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    "verifiable_math": _boxed,
    "code_output_prediction": _json_key("code_output", "code_output"),
    "complex_json_output": _json_key("ground_truth"),
    "unscramble_sentence": _tagged("ground_truth", "unscrambled_text", "\n"),
    "ascii_tree_formatting": _tagged("ground_truth", "ascii_formatted", "\n"),
    "reverse_text": _tagged("ground_truth", "answer"),
    "formatask": _formatask,
    "git_diff": _diff,
    "reasoning_gym": _reasoning_gym,
}


def derive_gold(task_type: str, info: Mapping[str, Any]) -> str | None:
    """A completion that must score 1.0, where the truth itself is the answer; else None."""
    rule = _RULES.get(task_type)
    return rule(info) if rule else None
