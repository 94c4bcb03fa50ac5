"""R4: `code_output_prediction` and `complex_json_output`, answers that are JSON objects."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from verifiers import extract, strict_json
from verifiers.errors import RowFault
from verifiers.kinds.base import Info, Kind, always_quick
from verifiers.result import Outcome, judged, no_answer

_MISSING = object()


def _last_object_text(text: str) -> str | None:
    """From the last `}` back to its matching `{`; braces inside JSON strings do not count.

    Walking backwards from behind a `}` starts outside of strings, so each unescaped quote
    met on the way enters or leaves one.
    """
    end = text.rfind("}")
    if end < 0:
        return None
    depth, i, in_string = 0, end, False
    while i >= 0:
        char = text[i]
        if char == '"':
            start = i
            while start and text[start - 1] == "\\":
                start -= 1
            if (i - start) % 2 == 0:
                in_string = not in_string
        elif not in_string:
            if char == "}":
                depth += 1
            elif char == "{":
                depth -= 1
                if depth == 0:
                    return text[i : end + 1]
        i -= 1
    return None


def _find(answer: str) -> tuple[str, Any]:
    """(text, value) of the JSON of the answer by the three steps of R4."""
    steps: tuple[Callable[[str], str | None], ...] = (str, extract.last_block, _last_object_text)
    for step in steps:
        text = step(answer)
        if text is None:
            continue
        try:
            return text, strict_json.loads(text)
        except strict_json.InvalidJson:
            continue
    raise strict_json.InvalidJson("the answer holds no valid JSON")


def find_object_text(answer: str) -> str:
    """The text of the JSON object of the answer; raises InvalidJson without one."""
    text, value = _find(answer)
    if not isinstance(value, dict):
        raise strict_json.InvalidJson(
            f"the JSON of the answer is a {type(value).__name__}, not an object"
        )
    return text


def find_object(answer: str) -> dict[str, Any] | Outcome:
    """The JSON object of the answer, or the outcome for an answer without one."""
    try:
        return dict(strict_json.loads(find_object_text(answer)))
    except strict_json.InvalidJson as error:
        return no_answer(str(error))


def exact_truth(value: Any) -> Any:
    """A truth parsed by an ordinary JSON reader, refused when it is no JSON value."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                raise RowFault("the truth has a key that is not a string")
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, float) and (item != item or item in (float("inf"), -float("inf"))):
            raise RowFault(f"the truth holds {item}, which is not JSON")
        elif item is not None and not isinstance(item, str | int | float | Decimal):
            raise RowFault(f"the truth holds a {type(item).__name__}, which is not JSON")
    return value


def _code_output(answer: str, info: Info) -> Outcome:
    # Rows of SYNTHETIC-1 name the truth ground_truth and ask for the key output.
    older = "code_output" not in info and "ground_truth" in info
    truth_key, key = ("ground_truth", "output") if older else ("code_output", "code_output")
    if truth_key not in info:
        raise RowFault("verification_info has no key code_output")
    truth = exact_truth(info[truth_key])
    found = find_object(answer)
    if isinstance(found, Outcome):
        return found
    if key not in found:
        return judged(0, f"the object has no key {key}")
    return judged(strict_json.deep_equal(found[key], truth))


def _complex_json(answer: str, info: Info) -> Outcome:
    truth = exact_truth(info.get("ground_truth"))
    if not isinstance(truth, dict):
        raise RowFault(f"verification_info.ground_truth must be an object, got {truth!r:.80}")
    found = find_object(answer)
    return found if isinstance(found, Outcome) else judged(strict_json.deep_equal(found, truth))


CODE_OUTPUT = Kind(
    name="code_output_prediction",
    version=1,
    task_types=("code_output_prediction",),
    binary=True,
    judge=_code_output,
    quick=always_quick,
    self_tests=(
        ('{"code_output": [1, 2.0]}', {"code_output": [1, 2]}, 1.0),
        ('{"code_output": true}', {"code_output": 1}, 0.0),
        ('{"code_output": 1}', {}, None),
    ),
)
COMPLEX_JSON = Kind(
    name="complex_json_output",
    version=1,
    task_types=("complex_json_output",),
    binary=True,
    judge=_complex_json,
    quick=always_quick,
    self_tests=(
        ('{"a": [1, {"b": null}]}', {"ground_truth": {"a": [1, {"b": None}]}}, 1.0),
        ('{"a": 1, "a": 1}', {"ground_truth": {"a": 1}}, 0.0),
    ),
)
