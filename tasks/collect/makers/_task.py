"""The row that every maker returns, and the checks that they share."""

from typing import Any

from tasks.collect.errors import BadOption


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
