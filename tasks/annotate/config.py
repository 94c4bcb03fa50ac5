"""Options of the annotate stage and of the choice of tasks for the teacher.

Invariant: together with the committed tables these options decide the result; nothing else does.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

PASS_MARK = 0.7
"""A non-binary answer passes above this score; a binary one passes at exactly 1."""


class AnnotateConfig(BaseModel):
    """How scores become a task's difficulty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_scored: int = Field(
        default=2,
        ge=1,
        description="Scored samples below which a task's pass rate for a model stays unknown "
        "(null).",
    )
    pass_mark: float = Field(
        default=PASS_MARK,
        ge=0.0,
        lt=1.0,
        description="A non-binary answer passes with a score above this; a binary one with "
        "exactly 1.",
    )


class SftConfig(BaseModel):
    """Which tasks the teacher answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    select: Literal["all", "hard"] = Field(
        default="hard",
        description="all: every task. hard: tasks that the annotators mostly fail; a task without "
        "any known pass rate is left out, as nobody can say that it is hard.",
    )
    max_pass_rate: float = Field(
        default=0.5,
        ge=0.0,
        le=1.0,
        description="Only with select = hard: the highest mean pass rate over the annotators.",
    )
