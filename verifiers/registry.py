"""task_type -> kind, and the judging of one row inside the present process.

`judge_row` is total: whatever the row holds, a Score comes back. It does not bound the
time; `scoring.score` and `pool.score_many` do.
"""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verifiers import extract, health, strict_json
from verifiers.errors import RowFault, UnknownTaskType
from verifiers.kinds import (
    ascii_tree,
    code,
    environment,
    formatask,
    git_diff,
    ifeval,
    json_answer,
    kernelbench,
    llm_judge,
    math,
    null_reward,
    pydantic_adherence,
    reasoning_gym,
    reverse_text,
    unscramble,
    verifiable_code,
)
from verifiers.kinds.base import Info, Kind
from verifiers.result import (
    DETAIL_LIMIT,
    Outcome,
    Score,
    no_answer,
    unverifiable,
    verifier_error,
)

KINDS: tuple[Kind, ...] = (
    math.KIND,
    code.KIND,
    reasoning_gym.KIND,
    json_answer.CODE_OUTPUT,
    json_answer.COMPLEX_JSON,
    pydantic_adherence.KIND,
    ifeval.KIND,
    unscramble.KIND,
    ascii_tree.KIND,
    formatask.KIND,
    git_diff.KIND,
    reverse_text.KIND,
    llm_judge.KIND,
    null_reward.KIND,
    environment.KIND,
    kernelbench.KIND,
    verifiable_code.KIND,
)
_BY_TYPE = {task_type: kind for kind in KINDS for task_type in kind.task_types}


def task_types() -> tuple[str, ...]:
    """All task types that have a verifier."""
    return tuple(sorted(_BY_TYPE))


def kind_of(task_type: object) -> Kind:
    """The kind of a task type; UnknownTaskType without one."""
    if not isinstance(task_type, str) or task_type not in _BY_TYPE:
        raise UnknownTaskType(task_type, task_types())
    return _BY_TYPE[task_type]


def is_binary(task_type: str) -> bool:
    """True when the scores of this task type are 0 or 1 only."""
    return kind_of(task_type).binary


def missing(task_type: str) -> str:
    """Why no row of this task type can be scored on this machine; empty when they can."""
    return kind_of(task_type).missing()


def config_hash(kind: Kind, require_think: bool = False) -> str:
    """Hash over what may change a verdict of the kind besides the input."""
    own = kind.settings() if callable(kind.settings) else kind.settings
    settings = {
        "kind": kind.name,
        "version": kind.version,
        "time_limit": kind.time_limit,
        "require_think": require_think,
        **own,
    }
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def as_score(kind: Kind, outcome: Outcome, seconds: float, require_think: bool = False) -> Score:
    """The verdict with the verifier's name, version and settings."""
    return Score(
        score=outcome.score,
        status=outcome.status,
        verifier=f"{kind.name}@{kind.version}",
        verifier_config=config_hash(kind, require_think),
        detail=outcome.detail[:DETAIL_LIMIT],
        seconds=seconds,
        binary=kind.binary,
    )


def unknown_score(error: UnknownTaskType) -> Score:
    """The Score of a row whose task type has no verifier."""
    return Score(None, "unverifiable", "none@0", "", str(error)[:DETAIL_LIMIT], 0.0, False)


def parse_info(value: object) -> Info:
    """verification_info as an object; a JSON text is parsed strictly, and so is the Python literal
    that rows of SYNTHETIC-1 hold.
    """
    if isinstance(value, str):
        literal = value.lstrip().startswith("{'")  # no JSON starts like that
        try:
            value = strict_json.loads_literal(value) if literal else strict_json.loads(value)
        except strict_json.InvalidJson as error:
            raise RowFault(f"verification_info is not JSON: {error}") from error
    if not isinstance(value, Mapping):
        raise RowFault(f"verification_info must be an object, got {type(value).__name__}")
    return value


@dataclass(frozen=True)
class Prepared:
    """What the judge gets. `missing` says why there is no answer, when there is none."""

    answer: str
    info: Info
    missing: str = ""


def prepare(completion: object, info: object, require_think: bool) -> Prepared | Outcome:
    """The answer part and the parsed row, or the outcome when the row is unreadable."""
    try:
        parsed = parse_info(info)
    except RowFault as fault:
        return unverifiable(str(fault))
    if not isinstance(completion, str):
        return unverifiable(f"completion must be text, got {type(completion).__name__}")
    answer = extract.answer_part(completion)
    if answer is None:
        return Prepared("", parsed, "the thinking was cut off: <think> without </think>")
    if require_think and not extract.has_closed_thinking(completion):
        return Prepared("", parsed, "no </think>, and the run requires thinking")
    return Prepared(answer, parsed)


def finish(kind: Kind, prepared: Prepared) -> Outcome:
    """Judge, unless the kind is broken in this process.

    An absent answer is judged as an empty one, so that a fault of the row shows.
    """
    if problem := health.fault(kind):
        return verifier_error(problem)
    outcome = health.run_judge(kind, prepared.answer, prepared.info)
    if prepared.missing and outcome.score is not None:
        return no_answer(prepared.missing)
    return outcome


def judge_row(
    task_type: Any, completion: Any, verification_info: Any, require_think: bool = False
) -> Score:
    """Judge one row here and now, for as long as it takes."""
    started = time.perf_counter()
    try:
        kind = kind_of(task_type)
    except UnknownTaskType as error:
        return unknown_score(error)
    prepared = prepare(completion, verification_info, require_think)
    outcome = prepared if isinstance(prepared, Outcome) else finish(kind, prepared)
    return as_score(kind, outcome, time.perf_counter() - started, require_think)
