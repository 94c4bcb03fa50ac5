"""R11: `reasoning_gym`, the library's own scorer, where only a full 1.0 counts.

The scorers see hostile text and a row that is not trusted, so what some of them do with
`eval` and sympy's `parse_expr` (which evaluates, too) is replaced, see reasoning_gym_guard.
"""

import json
import re
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from verifiers import extract, strict_json
from verifiers.errors import RowFault, VerifierFault
from verifiers.kinds.base import Info, Kind, text_of
from verifiers.kinds.reasoning_gym_guard import guard_library, invalid_puzzle
from verifiers.result import Outcome, judged, no_answer

ACCEPTS_GARBAGE = ("game_of_life_halting",)
NEEDS_TUPLES = ("arc_agi", "rearc")
FINAL_ANSWER = ("arc_agi", "rearc", "binary_matrix")
JSON_KEYS = {
    "maze": "num_steps",
    "quantum_lock": "sequence",
    "rotten_oranges": "answer",
    "self_reference": "answer",
    "bitwise_arithmetic": "answer",
}


_GARBAGE = "no such answer \u2603"
_NON_FINITE = re.compile(r"\b(?:nan|inf|infinity)\b", re.IGNORECASE)


def preload() -> None:
    """Import the library (seconds) before any row needs it."""
    guard_library()


@lru_cache(maxsize=256)
def _dataset(name: str) -> Any:
    guard_library()
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        return None
    dataset, config = DATASETS[name]
    return dataset(config=config())


def _entry(info: Info) -> dict[str, Any]:
    text = text_of(info, "reasoning_gym_entry")
    try:
        strict_json.loads(text)  # refuses what json.loads lets pass or dies of
        entry = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RowFault(f"reasoning_gym_entry is not JSON: {error}") from error
    if not isinstance(entry, dict) or "metadata" not in entry or "answer" not in entry:
        raise RowFault("reasoning_gym_entry must be an object with question, answer and metadata")
    return entry


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    return value


def candidates(name: str, answer: str) -> list[str]:
    """The texts to try as the answer: the tagged one, or the public rows' forms and the whole."""
    tagged = extract.last_tag(answer, "answer")
    if tagged is not None:
        return [tagged.strip()]
    found = []
    if name in FINAL_ANSWER and "Final Answer:" in answer:
        found.append(answer.rsplit("Final Answer:", 1)[1].strip())
    if name in JSON_KEYS:
        from verifiers.kinds.json_answer import find_object

        value = find_object(answer)
        if isinstance(value, dict) and JSON_KEYS[name] in value:
            item = value[JSON_KEYS[name]]
            found.append(item if isinstance(item, str) else json.dumps(item, default=str))
    return [*found, answer.strip()]


def _full_score(dataset: Any, name: str, entry: dict[str, Any], text: str) -> bool:
    try:
        return float(dataset.score_answer(answer=text, entry=entry)) == 1.0
    except Exception as error:
        raise VerifierFault(f"scorer of {name}: {type(error).__name__}: {error}") from error


def _accepts_garbage(dataset: Any, entry: dict[str, Any]) -> bool:
    try:
        return float(dataset.score_answer(answer=_GARBAGE, entry=entry)) == 1.0
    except Exception:  # refusing garbage loudly is fine
        return False


def _not_a_number(text: str, entry: dict[str, Any]) -> bool:
    """NaN and Infinity slip through comparisons with a tolerance (number_sorting)."""
    return bool(_NON_FINITE.search(text)) and not _NON_FINITE.search(str(entry["answer"]))


def _judge(answer: str, info: Info) -> Outcome:
    name = text_of(info, "reasoning_gym_dataset")
    entry = _entry(info)
    dataset = _dataset(name)
    if dataset is None:
        raise RowFault(f"reasoning-gym has no data set {name!r:.60}")
    if name in ACCEPTS_GARBAGE:
        raise VerifierFault(f"the scorer of {name} accepts any text, so it gives no verdict")
    if name in NEEDS_TUPLES and isinstance(entry["metadata"], dict):
        entry["metadata"] = {key: _tuples(value) for key, value in entry["metadata"].items()}
    texts = [text for text in candidates(name, answer) if text]
    if not texts:
        return no_answer("the answer is empty")
    if _accepts_garbage(dataset, entry):
        raise VerifierFault(f"the scorer of {name} accepts garbage on this entry")
    return judged(
        any(
            _full_score(dataset, name, entry, text)
            for text in texts
            if not _not_a_number(text, entry) and not invalid_puzzle(name, text, entry)
        )
    )


_ENTRY = json.dumps({"question": "1 + 2 =", "answer": "3", "metadata": {"expression": "1 + 2"}})
_ROW = {"reasoning_gym_dataset": "chain_sum", "reasoning_gym_entry": _ENTRY}
KIND = Kind(
    name="reasoning_gym",
    version=1,
    task_types=("reasoning_gym",),
    binary=True,
    judge=_judge,
    time_limit=15.0,
    settings={"library": version("reasoning-gym")},
    self_tests=(
        ("<answer>3</answer>", _ROW, 1.0),
        ("<answer>4</answer>", _ROW, 0.0),
        ("<answer>3</answer>", {**_ROW, "reasoning_gym_dataset": "game_of_life_halting"}, None),
    ),
)
