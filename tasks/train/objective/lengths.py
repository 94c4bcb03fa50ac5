"""Length targets and over-long samples.

Lengths are output tokens, thought and answer together, through the first end token.
Sources: targets and the exact form: INTELLECT-2 (arXiv 2505.07291), after L1 (arXiv
2503.04697); max and clip: the PRIME-RL code of May 2025; soft over-long penalty and over-long
masking: DAPO (arXiv 2503.14476, section 3.4).
"""

from tasks.train.objective.config import LengthConfig
from tasks.train.objective.errors import BadLength


def instruction(target: int, config: LengthConfig) -> str:
    """What follows the task's text in the prompt."""
    return config.instruction.replace("{target}", str(target))


def shaped_reward(
    task_reward: float, tokens: int, target: int | None, config: LengthConfig
) -> tuple[float, float]:
    """Reward with the length term, and the term itself.

    exact: r - alpha |target - tokens|, term: the penalty; not clipped at 0. max: r times the term
    clip(alpha (target - tokens) + 0.5, 0, 1). clip: r times the term 1 or 0. Without a length
    reward: r, and 0.

    Raises BadLength.
    """
    if tokens < 0:
        raise BadLength("tokens", tokens, "0 or more")
    if config.reward == "none":
        return task_reward, 0.0
    if target is None or target not in config.targets:
        raise BadLength("target", target, f"one of {list(config.targets)}")
    if config.reward == "exact":
        penalty = config.alpha * abs(target - tokens)
        return task_reward - penalty, penalty
    if config.reward == "max":
        factor = min(1.0, max(0.0, config.alpha * (target - tokens) + 0.5))
    else:
        factor = float(tokens <= target)
    return task_reward * factor, factor


def overlong_penalty(tokens: int, max_tokens: int, cache: int) -> float:
    """0 up to max_tokens - cache tokens, then linearly down to -1 at max_tokens and beyond.

    Raises BadLength.
    """
    if not 0 < cache <= max_tokens:
        raise BadLength("cache", cache, f"1 to max_tokens = {max_tokens}")
    return -min(1.0, max(0.0, (tokens - (max_tokens - cache)) / cache))
