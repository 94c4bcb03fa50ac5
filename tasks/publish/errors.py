"""What can stop the publish stage.

Nothing is current before the pointer moves, so a block costs nothing.
"""


class PublishError(Exception):
    """Base of this package's errors."""

    retryable = False


class NothingToPublish(PublishError):
    """The run has no accepted and verified trace."""

    def __init__(self, run_id: str, accepted: int, held_back: dict[str, int]) -> None:
        super().__init__(
            f"run {run_id}: no trace can be published ({accepted} accepted; held back: "
            f"{held_back or 'none'}). An empty dataset would hide that: look at "
            f"`tracemill status {run_id}` for the stage that lost them."
        )


class RowsDoNotAddUp(PublishError):
    """Two counts of the same rows differ."""

    def __init__(self, what: str, counted: int, expected: int, where: str) -> None:
        super().__init__(
            f"{what}: {counted} rows, but {expected} expected ({where}). Nothing was published. "
            "A committed shard and the rows made from it disagree: check that shard."
        )


class ContractBroken(PublishError):
    """A published table breaks its contract."""

    def __init__(self, config: str, rules: tuple[str, ...]) -> None:
        super().__init__(
            f"config {config} breaks its contract: {'; '.join(rules)}. Nothing was published; the "
            "former version stays current. Correct the stage that wrote these rows."
        )


class VersionDamaged(PublishError):
    """A version that has its manifest lacks files or holds other bytes."""

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(
            f"{path}: found {found}, the version's manifest says {expected}. A published version "
            f"never "
            "changes: restore the file, or delete the version's folder and publish again."
        )


class PointerContended(PublishError):
    """Other publishers kept taking the next place in the list of versions."""

    retryable = True

    def __init__(self, name: str, tries: int) -> None:
        super().__init__(
            f"published/{name}: another publisher took the next place {tries} times in a row. "
            "The files are written: publish again to make them current."
        )
