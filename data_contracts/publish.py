"""Contracts of the four published configs. No proofs, times or node ids: the bytes depend on
content alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from data_contracts.errors import BadValue
from data_contracts.expectations import check
from data_contracts.fields import MESSAGES, TEXT, optional, required
from data_contracts.flags import messages_ok, parse_json, task_id_recomputes, unit
from data_contracts.ids import ID_PATTERN
from data_contracts.report import Report
from data_contracts.rules import Contract, Derived, Rows, Rule, holds, in_set, matches, unique
from data_contracts.verify import STATUSES, UNSCORED

VERIFIED_ABOVE = 0.7

CONFIGS = ("full", "sft_verified", "sft_unverified", "rl")

_FULL = pa.schema(
    [
        required("problem_id", pa.string()),
        required("task_id", pa.string()),
        required("task_type", pa.string()),
        required("prompt", MESSAGES),
        required("verification_info", TEXT),
        required("model", pa.string()),
        required("sample_index", pa.int32()),
        required("completion", TEXT),
        required("finish_reason", pa.string()),
        optional("reward", pa.float64()),
        required("reward_status", pa.string()),
        required("binary", pa.bool_()),
    ]
)
_SFT = pa.schema(
    [
        required("problem_id", pa.string()),
        required("task_id", pa.string()),
        required("task_type", pa.string()),
        required("messages", MESSAGES),
        required("completion", TEXT),
        optional("reward", pa.float64()),
        required("reward_status", pa.string()),
    ]
)
_RL = (
    required("problem_id", pa.string()),
    required("task_id", pa.string()),
    required("task_type", pa.string()),
    required("prompt", MESSAGES),
    required("verification_info", TEXT),
)


def rl(annotators: Sequence[str]) -> pa.Schema:
    """Schema of the `rl` config: difficulty columns per annotator slug, in the order given."""
    fields = list(_RL)
    for slug in annotators:
        fields.append(optional(f"avg_reward_{slug}", pa.float64()))
        fields.append(optional(f"pass_rate_{slug}", pa.float64()))
        fields.append(required(f"n_{slug}", pa.int32()))
    return pa.schema(fields)


SCHEMAS = {"full": _FULL, "sft_verified": _SFT, "sft_unverified": _SFT, "rl": rl}
"""Config -> schema; for `rl` a function of the annotator slugs."""


def schema(config: str, annotators: Sequence[str] = ()) -> pa.Schema:
    """Schema of one published config."""
    if config == "rl":
        return rl(annotators)
    if config not in CONFIGS:
        raise BadValue(f"published config {config!r} is unknown; there are {list(CONFIGS)}")
    return SCHEMAS[config]


def _sorted_by(*names: str) -> Derived:
    """Rows do not go down in the named columns: the order that keeps bytes reproducible."""

    def flags(rows: Rows) -> list[bool]:
        keys = list(zip(*(rows[name] for name in names), strict=True))
        return [not number or keys[number - 1] <= key for number, key in enumerate(keys)]

    return flags


def _task_id_ok(rows: Rows) -> list[bool]:
    columns = (rows["task_id"], rows["task_type"], rows["prompt"], rows["verification_info"])
    return [task_id_recomputes(*row) for row in zip(*columns, strict=True)]


def _reward_agrees(reward: float | None, status: str) -> bool:
    return unit(reward) and (status not in STATUSES or (reward is None) == (status in UNSCORED))


def _answer_ok(messages: list[dict[str, Any]], completion: str) -> bool:
    answer = messages[-1] if messages else {"role": "", "content": ""}
    return (
        messages_ok(messages[:-1], "user")
        and answer["role"] == "assistant"
        and answer["content"] == completion
    )


_REWARD: dict[str, Derived] = {
    "reward_agrees": lambda rows: [
        _reward_agrees(*row) for row in zip(rows["reward"], rows["reward_status"], strict=True)
    ],
}
_REWARD_RULES = (
    in_set("reward_status", STATUSES, "block"),
    holds("reward_agrees", "block", f"in [0, 1]; null exactly with {' and '.join(UNSCORED)}"),
)
# What is published was checked stage by stage: a finding here is a fault of the publisher, and
# nothing may be dropped silently at the last step. So rules block.
_TASK_RULES = (
    matches("task_id", ID_PATTERN, "32 lower-case hex characters", "block"),
    matches("problem_id", r"\S", "must not be blank", "block"),
)
_CONTENT = holds("task_id_recomputes", "block", "must be the hash of the row's own content")


def _full_contract() -> Contract:
    order = ("task_type", "task_id", "model", "sample_index")
    return Contract(
        name="full",
        schema=_FULL,
        empty="warn",
        derived={
            **_REWARD,
            "in_order": _sorted_by(*order),
            "task_id_recomputes": _task_id_ok,
            "binary_reward": lambda rows: [
                not binary or reward in (None, 0.0, 1.0) or not unit(reward)
                for binary, reward in zip(rows["binary"], rows["reward"], strict=True)
            ],
        },
        rules=(
            matches("problem_id", r"\S", "must not be blank", "block"),
            *_REWARD_RULES,
            _CONTENT,
            # Not blocking: a model may be annotator and teacher, with other sampling parameters.
            unique("task_id", "model", "sample_index", outcome="warn"),
            in_set("finish_reason", ("stop", "length"), "block"),
            holds("in_order", "block", f"rows are sorted by {', '.join(order)}"),
            holds("binary_reward", "block", "a binary verifier scores 0 or 1"),
        ),
    )


def _sft_contract(config: str) -> Contract:
    derived: dict[str, Derived] = {
        **_REWARD,
        "in_order": _sorted_by("task_type", "task_id"),
        "answer_last": lambda rows: [
            _answer_ok(*row) for row in zip(rows["messages"], rows["completion"], strict=True)
        ],
    }
    rules: list[Rule] = [
        *_TASK_RULES,
        *_REWARD_RULES,
        holds("in_order", "block", "rows are sorted by task_type, task_id"),
        holds("answer_last", "block", "the prompt's messages, then the completion as the answer"),
    ]
    if config == "sft_verified":
        derived["verified"] = lambda rows: [
            reward is None or not unit(reward) or reward > VERIFIED_ABOVE
            for reward in rows["reward"]
        ]
        derived["scored"] = lambda rows: [reward is not None for reward in rows["reward"]]
        rules.append(holds("verified", "block", f"the reward is above {VERIFIED_ABOVE}"))
        rules.append(holds("scored", "block", "a verified answer has a reward"))
    return Contract(name=config, schema=_SFT, rules=tuple(rules), derived=derived, empty="warn")


def _difficulty_ok(count: int, average: float | None, rate: float | None) -> bool:
    if (average is None) != (rate is None) or not (unit(average) and unit(rate)):
        return False
    return count >= 0 and (count > 0 or rate is None)


def _difficulty_of(slug: str) -> Derived:
    names = (f"n_{slug}", f"avg_reward_{slug}", f"pass_rate_{slug}")
    return lambda rows: [
        _difficulty_ok(*row) for row in zip(*(rows[name] for name in names), strict=True)
    ]


def _rl_contract(annotators: Sequence[str]) -> Contract:
    derived: dict[str, Derived] = {
        "in_order": _sorted_by("task_type", "task_id"),
        "task_id_recomputes": _task_id_ok,
        "info_not_empty": lambda rows: [
            parse_json(text) != {} for text in rows["verification_info"]
        ],
    }
    rules: list[Rule] = [
        unique("task_id"),
        matches("problem_id", r"\S", "must not be blank", "block"),
        _CONTENT,
        holds("in_order", "block", "rows are sorted by task_type, task_id"),
        holds("info_not_empty", "block", "a task with a verifier has something to verify against"),
    ]
    for slug in annotators:
        derived[f"difficulty_{slug}"] = _difficulty_of(slug)
        message = "both rates in [0, 1] or both null, null without scored samples"
        rules.append(holds(f"difficulty_{slug}", "block", message))
    return Contract(
        name="rl", schema=rl(annotators), rules=tuple(rules), derived=derived, empty="warn"
    )


@lru_cache(maxsize=32)
def contract(config: str, annotators: tuple[str, ...] = ()) -> Contract:
    """Contract of one published config."""
    if config == "rl":
        return _rl_contract(annotators)
    schema(config)
    return _full_contract() if config == "full" else _sft_contract(config)


def validate(table: pa.Table, config: str, annotators: Sequence[str] = ()) -> Report:
    """What the contract of a published config says about its table."""
    return check(contract(config, tuple(annotators)), table)
