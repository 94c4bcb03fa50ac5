"""When a Prefect task tries again: only for errors whose class says that it may help."""

from typing import Any

RETRIES = 2
RETRY_DELAY_SECONDS: list[float] = [2, 10]


def is_retryable(task: Any, task_run: Any, state: Any) -> bool:
    """Prefect's `retry_condition_fn`: the class attribute `retryable` of the error decides."""
    try:
        state.result()
    except Exception as error:
        return bool(getattr(error, "retryable", False))
    return False
