"""Worked examples: solved tasks of the same source as earlier turns of the conversation.

Small models answer in the form that they are shown. Invariants: an example is never one of the
questions (its answer would be given away); every question of a source gets the same examples.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from tasks.collect.rows import Bad, Raw

SPARE = 4
"""Rows drawn for each example wanted: some repeat a question, or have no known answer."""


def drawn(size: int, examples: int) -> int:
    """How many rows a source has to draw for `size` questions."""
    return size + SPARE * examples


def with_examples(rows: Iterable[Raw | Bad], size: int, examples: int) -> Iterator[Raw | Bad]:
    """The first `size` rows as questions, each after the same solved rows from the rest."""
    rows = iter(rows)
    questions = list(islice(rows, size))
    asked = {row.row["prompt"] for row in questions if isinstance(row, Raw)}
    solved = (
        row.row
        for row in rows
        if isinstance(row, Raw) and row.row["gold"] is not None and row.row["prompt"] not in asked
    )
    turns = list(chain.from_iterable(map(_turns, islice(solved, examples))))
    for question in questions:
        yield question if isinstance(question, Bad) else _after(turns, question)


def _turns(row: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": row["prompt"]},
        {"role": "assistant", "content": row["gold"]},
    ]


def _after(turns: list[dict[str, str]], question: Raw) -> Raw:
    asked = {"role": "user", "content": question.row["prompt"]}
    return replace(question, row=question.row | {"prompt": [*turns, asked]})
