"""`environment`: the reward that an environment wheel of the library `verifiers` gives.

The row names an environment that is installed here by the hash of its lock, and carries the row of
its dataset: `{environment, lock, args?, row, reward_range?}`. The completion is the model's text,
or its side of a conversation (verifiers/environments/messages.py), which is played again.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from verifiers.environments import episode, process
from verifiers.environments.episode import Episode
from verifiers.environments.loaded import loaded
from verifiers.environments.messages import Message, assistant_message, turns_of
from verifiers.errors import EnvironmentBroken, EnvironmentSlow, RowFault, VerifierFault
from verifiers.kinds.base import Info, Kind, text_of
from verifiers.result import OK, Outcome, crashed, judged, no_answer, timed_out
from verifiers.sandbox import availability


@dataclass(frozen=True)
class _Break:
    """How an environment broke after a message of the model."""

    failure: EnvironmentBroken
    scoring: bool
    """After the conversation."""


def _object(info: Info, key: str, *, needed: bool) -> dict[str, object]:
    value = info.get(key)
    if value is None and not needed:
        return {}
    if not isinstance(value, dict):
        raise RowFault(f"verification_info.{key} must be an object, got {value!r:.80}")
    return value


def _range(info: Info) -> tuple[float, float]:
    given = info.get("reward_range", [0.0, 1.0])
    numbers = [item for item in given if isinstance(item, int | float)] if given else []
    if (
        not isinstance(given, list)
        or len(numbers) != 2
        or not all(math.isfinite(number) for number in numbers)
        or numbers[0] >= numbers[1]
    ):
        raise RowFault(f"verification_info.reward_range must be [low, high], got {given!r:.80}")
    return float(numbers[0]), float(numbers[1])


def _judge(answer: str, info: Info) -> Outcome:
    name, digest = text_of(info, "environment"), text_of(info, "lock")
    args = _object(info, "args", needed=False)
    row = _object(info, "row", needed=True)
    if not isinstance(row.get("prompt"), list):
        raise RowFault("verification_info.row.prompt must be a list of messages")
    low, high = _range(info)
    if reason := availability()[1]:
        raise VerifierFault(reason)
    place = digest, name, args
    with loaded(*place) as environment:
        single = environment.single_turn
    if not answer.strip():
        return no_answer("the answer is empty")
    turns = [assistant_message(answer)] if single else turns_of(answer)

    def play(messages: list[Message]) -> Outcome | _Break:
        with loaded(*place) as environment, environment.episode(row) as talk:
            return _play(talk, messages, low, high)

    played = play(turns)
    return played if isinstance(played, Outcome) else _blame(turns, row, play)


def _play(talk: Episode, messages: list[Message], low: float, high: float) -> Outcome | _Break:
    try:
        for message in messages:
            if talk.turn is None:
                break  # what is said after the end does not count
            talk.step(message)
        if talk.turn is not None:
            return no_answer(f"the environment waits for turn {len(messages) + 1}")
        result = talk.score(low, high)
    except EnvironmentBroken:
        if talk.failure is None or talk.turns == 0:
            raise
        return _Break(talk.failure, talk.turn is None)
    beside = ", ".join(f"{key}={value:g}" for key, value in sorted(result.metrics.items()))
    return judged(result.score, f"reward {result.reward:g}, ended by {result.stop}; {beside}")


def _blame(
    turns: list[Message],
    row: Mapping[str, object],
    play: Callable[[list[Message]], Outcome | _Break],
) -> Outcome:
    """A completion that breaks the environment twice, where it bears another one, scores 0."""
    broke = play(turns)
    if isinstance(broke, Outcome):
        return broke
    for text in _other_texts(row):
        other = play([{"role": "assistant", "content": text}] * len(turns))
        if isinstance(other, Outcome) and (other.status == OK or not broke.scoring):
            at_fault = timed_out if isinstance(broke.failure, EnvironmentSlow) else crashed
            return at_fault(f"the completion breaks the environment: {broke.failure}")
    raise broke.failure


def _other_texts(row: Mapping[str, object]) -> Iterator[str]:
    """Harmless answers: one that knows nothing, and the row's own, bare and marked."""
    yield "I do not know."
    truth = row.get("answer")
    if isinstance(truth, str) and truth:
        yield truth
        yield f"\\boxed{{{truth}}} <answer>{truth}</answer>"


KIND = Kind(
    name="environment",
    version=2,
    task_types=("environment",),
    binary=False,
    judge=_judge,
    self_limiting=True,
    missing=lambda: availability()[1],
    settings={
        "guest": hashlib.sha256(Path(process.GUEST).read_bytes()).hexdigest()[:16],
        "turn_seconds": episode.TURN_SECONDS,
        "cpu_seconds": process.EPISODE_CPU_SECONDS,
        "memory": process.LIMITS.memory_bytes,
    },
    self_tests=(("x", {"environment": "none"}, None),),
)
