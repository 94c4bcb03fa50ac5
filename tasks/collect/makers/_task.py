"""The row that every maker returns, and the checks that they share."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tasks.collect.errors import BadOption

T = TypeVar("T")


def row(
    task_type: str,
    seed: int,
    index: int,
    prompt: str,
    info: dict[str, Any],
    gold: str,
    **metadata: Any,
) -> dict[str, Any]:
    """A raw task row: like one of the public data, plus its gold answer."""
    return {
        "problem_id": f"{task_type}-{seed}-{index}",
        "task_type": task_type,
        "prompt": prompt,
        "verification_info": info,
        "metadata": metadata,
        "gold": gold,
    }


def check_range(maker: str, knob: str, value: object, low: int, high: int) -> int:
    """The knob's value, or an error that says what is allowed."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadOption(
            f"maker {maker}: {knob} = {value!r} is not allowed. "
            f"Give a whole number from {low} to {high}."
        )
    return value


def check_choice(maker: str, knob: str, value: object, allowed: tuple[str, ...]) -> str:
    """The knob's value, or an error that lists the choices."""
    if not isinstance(value, str) or value not in allowed:
        raise BadOption(
            f"maker {maker}: {knob} = {value!r} is not allowed. Choose one of {', '.join(allowed)}."
        )
    return value


def third(items: Sequence[T], level: int, size: Callable[[T], int]) -> Sequence[T]:
    """The items of a level: 1 the smallest third, 2 the middle one, 3 the largest, 0 all."""
    if not level:
        return items
    ranked = sorted(items, key=size)
    cuts = [len(items) * place // 3 for place in range(4)]
    return ranked[cuts[level - 1] : cuts[level]]
