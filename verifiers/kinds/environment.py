"""`environment`: the reward that an environment wheel of the library `verifiers` gives.

The row names an environment that is installed here by the hash of its lock, and carries the row of
its dataset: `{environment, lock, args?, row, reward_range?}`. The completion is the model's text,
or its side of a conversation (verifiers/environments/messages.py), which is played again.
"""

import hashlib
import math
from pathlib import Path

from verifiers.environments import episode, process
from verifiers.environments.loaded import loaded
from verifiers.environments.messages import assistant_message, turns_of
from verifiers.errors import RowFault, VerifierFault
from verifiers.kinds.base import Info, Kind, text_of
from verifiers.result import Outcome, judged, no_answer
from verifiers.sandbox import availability


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
    with loaded(digest, name, args) as environment:
        if not answer.strip():
            return no_answer("the answer is empty")
        turns = [assistant_message(answer)] if environment.single_turn else turns_of(answer)
        with environment.episode(row) as talk:
            for message in turns:
                if talk.turn is None:
                    raise VerifierFault(
                        f"environment {name} ended after {talk.turns} of {len(turns)} turns of the "
                        "completion: it is not the one that these were made with"
                    )
                talk.step(message)
            if talk.turn is not None:
                return no_answer(f"the environment waits for turn {len(turns) + 1}")
            result = talk.score(low, high)
    beside = ", ".join(f"{key}={value:g}" for key, value in sorted(result.metrics.items()))
    return judged(result.score, f"reward {result.reward:g}, ended by {result.stop}; {beside}")


KIND = Kind(
    name="environment",
    version=1,
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
