"""What can stop the annotate stage."""


class AnnotateError(Exception):
    """Base of this package's errors."""

    retryable = False


class NothingPlanned(AnnotateError):
    """No annotator shard is planned, so there is nothing to measure difficulty with."""

    def __init__(self, run_id: str, plan: str) -> None:
        super().__init__(
            f"run {run_id}: the plan {plan} is missing or has no rows; difficulty needs the "
            f"samples of "
            "at least one annotator model. Commit the annotators' plan before annotate."
        )


class InvalidDifficulty(AnnotateError):
    """The difficulty table breaks its contract."""

    def __init__(self, run_id: str, rules: tuple[str, ...]) -> None:
        super().__init__(
            f"run {run_id}: the difficulty table breaks its contract: {'; '.join(rules)}. "
            "Nothing was committed. Check the rewards that it was computed from."
        )
