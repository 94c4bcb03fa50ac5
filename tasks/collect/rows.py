"""From a source's raw row to a row of the tasks table.

Invariant: every raw row comes out as exactly one task row or one `Bad` with the row as it came.
Rows are untrusted: nothing in them may raise, and text is made valid UTF-8 before it is stored.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

import verifiers
from data_contracts.errors import ContractError
from data_contracts.ids import canonical_json, task_id
from data_contracts.text import clean_text
from tasks.collect.gold import derive_gold
from verifiers import strict_json

_ROLES = ("system", "user", "assistant")
_OWN_KEYS = ("problem_id", "task_type", "prompt", "verification_info", "metadata", "gold", "source")
_JUDGED = "llm_judgeable_groundtruth_similarity"


@dataclass(frozen=True)
class Raw:
    """A row as its source gave it."""

    row: dict[str, Any]
    source: str
    place: int = 0
    """Line or row number in the source, from 1, where it has one."""

    @property
    def origin(self) -> str:
        """Where the row stands, for the quarantine."""
        return f"{self.source}:{self.place}" if self.place else self.source

    def slim(self) -> "Raw":
        """Without the columns that no task needs; public rows carry megabytes of responses."""
        return replace(self, row={key: self.row[key] for key in _OWN_KEYS if key in self.row})


@dataclass(frozen=True)
class Bad:
    """A row that cannot become a task; `reason` is `code` or `code: detail`."""

    row: dict[str, Any]
    reason: str
    origin: str


class _Unfit(Exception):
    """Carries the reason from the depth of a check to `to_task`."""


def to_task(raw: Raw) -> dict[str, Any] | Bad:
    """The task row, or why there is none."""
    try:
        return _build(raw)
    except _Unfit as unfit:
        return Bad(raw.row, str(unfit), raw.origin)
    except RecursionError:
        return Bad(raw.row, "too_deep: nested deeper than can be processed", raw.origin)


def _build(raw: Raw) -> dict[str, Any]:
    row = raw.row
    missing = [key for key in ("task_type", "prompt", "verification_info") if row.get(key) is None]
    if missing:
        raise _Unfit(f"missing_key: {', '.join(missing)}")
    task_type = row["task_type"]
    if not isinstance(task_type, str):
        raise _Unfit(f"wrong_type: task_type is a {type(task_type).__name__}, not a string")
    try:
        binary = verifiers.is_binary(task_type)
    except verifiers.UnknownTaskType:
        raise _Unfit(f"unknown_task_type: {task_type[:80]!r} has no verifier") from None
    prompt, repaired = _messages(row["prompt"])
    info = _with_gold(_info(row["verification_info"]), row, prompt)
    try:
        identity = task_id(task_type, prompt, info)
        info_text = canonical_json(info)
        metadata = _metadata(row, repaired)
    except ContractError as error:
        raise _Unfit(f"not_json: {error}") from None
    gold = row["gold"] if row.get("gold") is not None else derive_gold(task_type, info)
    if gold is not None and not isinstance(gold, str):
        raise _Unfit(f"wrong_type: gold is a {type(gold).__name__}, not a string")
    return {
        "task_id": identity,
        "problem_id": _problem_id(row.get("problem_id"), identity),
        "source": clean_text(raw.source),
        "task_type": task_type,
        "prompt": prompt,
        "verification_info": info_text,
        "metadata": metadata,
        "gold": None if gold is None else clean_text(gold),
        "binary": binary,
    }


def _messages(prompt: object) -> tuple[list[dict[str, str]], bool]:
    """Chat messages with valid text, and whether text had to be repaired."""
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    if not isinstance(prompt, list) or not prompt:
        raise _Unfit(f"wrong_type: prompt is {_short(prompt)}, not a text or a list of messages")
    messages = []
    repaired = False
    for message in prompt:
        role = message.get("role") if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if role not in _ROLES or not isinstance(content, str):
            raise _Unfit(
                f"wrong_type: a message needs a role ({', '.join(_ROLES)}) and a text as content; "
                f"got {_short(message)}"
            )
        clean = clean_text(content)
        repaired |= clean != content
        messages.append({"role": str(role), "content": clean})
    if not any(message["content"].strip() for message in messages):
        raise _Unfit("empty_prompt")
    return messages, repaired


def _info(info: object) -> dict[str, Any]:
    """The verifier's object. Public rows carry it as JSON text, older ones as a Python literal."""
    if isinstance(info, str):
        info = _parse_info(info)
    if not isinstance(info, dict):
        raise _Unfit(f"wrong_type: verification_info is {_short(info)}, not an object")
    return info


def _with_gold(
    info: dict[str, Any], row: dict[str, Any], prompt: list[dict[str, str]]
) -> dict[str, Any]:
    """Rows for a judge carry their truth in a column of its own, which no verifier sees."""
    gold = row.get("gold_standard_solution")
    if row["task_type"] != _JUDGED or "ground_truth" in info or not isinstance(gold, str):
        return info
    return {**info, "ground_truth": clean_text(gold), "problem": prompt[-1]["content"]}


def _parse_info(text: str) -> object:
    try:
        try:
            return strict_json.loads(text, exact=False)
        except strict_json.NotJson:
            return strict_json.loads_literal(text)
    except strict_json.InvalidJson as error:
        raise _Unfit(f"bad_verification_info: {error}") from None


def _metadata(row: dict[str, Any], repaired: bool) -> str:
    """The row's metadata as JSON; names of further columns are kept, their values are not."""
    given = row.get("metadata")
    metadata: dict[str, Any] = {}
    if isinstance(given, str) and given:
        try:
            parsed = strict_json.loads(given, exact=False)
        except strict_json.InvalidJson:
            parsed = given
        metadata = parsed if isinstance(parsed, dict) else {"text": clean_text(given)}
    elif isinstance(given, dict):
        metadata = dict(given)
    if row.get("source") is not None:
        metadata["row_source"] = clean_text(str(row["source"]))
    further = sorted(clean_text(str(key)) for key in row if key not in _OWN_KEYS)
    if further:
        metadata["columns_left_out"] = further
    if repaired:
        metadata["prompt_text_repaired"] = True
    return canonical_json(metadata)


def _problem_id(given: object, identity: str) -> str:
    if isinstance(given, str | int) and not isinstance(given, bool) and str(given).strip():
        return clean_text(str(given))
    return identity


def _short(value: object) -> str:
    return f"{type(value).__name__} {repr(value)[:80]}"


def with_metadata(task: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The task with further entries in its metadata."""
    return {**task, "metadata": canonical_json({**json.loads(task["metadata"]), **more})}
