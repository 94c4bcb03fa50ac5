"""Contract of the `tasks` table: one row is one task, with what its verifier needs."""

from __future__ import annotations

import pyarrow as pa

from data_contracts.expectations import check
from data_contracts.fields import MESSAGES, TEXT, optional, required
from data_contracts.flags import ROLES, is_json_object, messages_ok, task_id_recomputes
from data_contracts.report import Report
from data_contracts.rules import Contract, Rows, holds, matches, unique

SCHEMA = pa.schema(
    [
        required("task_id", pa.string()),
        required("problem_id", pa.string()),
        required("source", pa.string()),
        required("task_type", pa.string()),
        required("prompt", MESSAGES),
        required("verification_info", TEXT),
        required("metadata", pa.string()),
        optional("gold", TEXT),
        required("binary", pa.bool_()),
    ]
)


def _task_id_ok(rows: Rows) -> list[bool]:
    columns = (rows["task_id"], rows["task_type"], rows["prompt"], rows["verification_info"])
    return [task_id_recomputes(*row) for row in zip(*columns, strict=True)]


def _one_kind(rows: Rows) -> list[bool]:
    kinds: dict[str, set[bool]] = {}
    for task_type, binary in zip(rows["task_type"], rows["binary"], strict=True):
        kinds.setdefault(task_type, set()).add(binary)
    return [len(kinds[task_type]) == 1 for task_type in rows["task_type"]]


CONTRACT = Contract(
    name="tasks",
    schema=SCHEMA,
    derived={
        "task_id_recomputes": _task_id_ok,
        "prompt_ok": lambda rows: [messages_ok(prompt, "user") for prompt in rows["prompt"]],
        "verification_info_json": lambda rows: [
            is_json_object(text) for text in rows["verification_info"]
        ],
        "metadata_json": lambda rows: [is_json_object(text) for text in rows["metadata"]],
        "gold_not_blank": lambda rows: [
            gold is None or bool(gold.strip()) for gold in rows["gold"]
        ],
        "binary_consistent": _one_kind,
    },
    rules=(
        unique("task_id"),
        holds("task_id_recomputes", "quarantine", "must be the hash of the row's own content"),
        matches("task_type", r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z", "letters, digits and _.- only"),
        matches("problem_id", r"\S", "must not be blank"),
        matches("source", r"\S", "must not be blank"),
        holds(
            "prompt_ok",
            "quarantine",
            f"messages with roles {', '.join(sorted(ROLES))} and text, the last from the user",
        ),
        holds("verification_info_json", "quarantine", "must be a JSON object"),
        holds("metadata_json", "quarantine", "must be a JSON object"),
        holds("gold_not_blank", "quarantine", "a gold answer is null or has text"),
        holds("binary_consistent", "block", "a task type has one kind of verifier"),
        unique("source", "problem_id", outcome="warn"),
    ),
)


def validate(table: pa.Table) -> Report:
    """What the contract says about a tasks table."""
    return check(CONTRACT, table)
