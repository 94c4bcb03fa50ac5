"""One conversation between a model on our side and an environment on theirs.

start(row) -> turn; step(message) -> turn, or None when the environment has heard enough; score().
Invariants: the reward that an environment claims is a finite number in the stated range, or there
is no score; an error of the environment is an exception, never a reward of 0.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from verifiers.environments.line import Line
from verifiers.errors import EnvironmentBroken

TURN_SECONDS = 120.0
"""Wall time that an environment has for its turn, or for the score."""
MAX_TURNS = 200
MAX_METRICS = 200
ROUNDING = 1e-9

Message = dict[str, Any]
Model = Callable[[list[Message], list[dict[str, Any]]], Message]
"""(conversation so far, tools) -> the assistant's message: role, content, tool_calls."""


@dataclass(frozen=True)
class Turn:
    """What the environment adds to the conversation before the model's turn."""

    messages: list[Message]
    tools: list[dict[str, Any]]
    """Definitions: name, description, parameters (a JSON schema)."""


@dataclass(frozen=True)
class Result:
    """The score of an episode, mapped to [0, 1], with what the environment measured beside."""

    score: float
    reward: float
    """As the environment gave it."""
    metrics: Mapping[str, float]
    stop: str
    """Name of the condition that ended the episode."""
    turns: int
    messages: list[Message] = field(repr=False)
    """The conversation, prompt included, as far as the model has seen it."""


class Episode:
    """Begins at once: `turn` is what the model is asked first."""

    def __init__(self, line: Line, row: Mapping[str, Any], kill: Callable[[], None]):
        self._line, self._kill = line, kill
        self._open = True
        self.turns = 0
        """Of the model, so far."""
        self.failure: EnvironmentBroken | None = None
        """What ended it early, when the environment hung, died or raised instead of answering."""
        self._stop = ""
        self.messages: list[Message] = []
        self.turn: Turn | None = None
        self._next({"row": dict(row)})

    def step(self, message: Message) -> Turn | None:
        """The model's message; gives the environment's next turn, None when it is over."""
        if self.turn is None:
            raise EnvironmentBroken("the episode is over: the environment takes no further message")
        self.turns += 1
        if self.turns > MAX_TURNS:
            self.close()
            raise EnvironmentBroken(f"the environment still goes on after {MAX_TURNS} turns")
        self.messages.append(message)
        self._next({"message": message})
        return self.turn

    def score(self, low: float = 0.0, high: float = 1.0) -> Result:
        """The environment's reward, `low` to `high`, mapped to [0, 1]."""
        if self.turn is not None:
            raise EnvironmentBroken("the environment waits for a message: no score yet")
        value = self._ask({"score": True}, "score")[1]
        self.close()
        reward = _number(value, "reward")
        if not low - ROUNDING <= reward <= high + ROUNDING:
            raise EnvironmentBroken(
                f"the environment gives a reward of {reward:g}, outside of {low:g} to {high:g}; "
                "state its range in the row as reward_range: [low, high]"
            )
        metrics = value.get("metrics")
        if not isinstance(metrics, dict) or len(metrics) > MAX_METRICS:
            raise EnvironmentBroken("the environment's metrics are no small object")
        score = min(1.0, max(0.0, (reward - low) / (high - low)))
        numbers = {name[:100]: _number(metrics, name) for name in metrics}
        return Result(score, reward, numbers, self._stop, self.turns, self.messages)

    def close(self) -> None:
        """End it; an episode that has no score yet is killed."""
        if self._open:
            self._open = False
            self._line.close()
            self._kill()

    def __enter__(self) -> "Episode":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self, message: dict[str, Any]) -> None:
        key, value = self._ask(message, "turn", "end")
        if not isinstance(value, dict):
            raise self._broken("its reply is no object")
        if key == "end":
            self.turn = None
            self._stop = str(value.get("stop"))[:100]
            return
        added, tools = value.get("messages"), value.get("tools") or []
        if not _objects(added) or not _objects(tools):
            raise self._broken("its turn is no list of messages and tools")
        if value.get("of") != len(self.messages) + len(added):
            raise self._broken("it rewrote the conversation; only additions are followed here")
        self.messages += added
        self.turn = Turn(added, tools)

    def _ask(self, message: dict[str, Any], *expected: str) -> tuple[str, Any]:
        try:
            self._line.send(message, TURN_SECONDS)
            return self._line.receive(TURN_SECONDS, *expected)
        except EnvironmentBroken as error:
            self.failure = error
            self.close()
            raise

    def _broken(self, what: str) -> EnvironmentBroken:
        self.close()
        return EnvironmentBroken(f"the environment broke the protocol: {what}")


def play(episode: Episode, model: Model, low: float = 0.0, high: float = 1.0) -> Result:
    """Let a model answer until the environment has enough; its score."""
    with episode:
        while episode.turn is not None:
            episode.step(model(list(episode.messages), episode.turn.tools))
        return episode.score(low, high)


def _objects(value: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _number(values: object, key: str) -> float:
    value = values.get(key) if isinstance(values, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EnvironmentBroken(f"the environment gives {value!r:.40} as {key[:60]}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise EnvironmentBroken(f"the environment gives {value!r:.40} as {key[:60]}")
    return number
