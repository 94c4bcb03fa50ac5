"""Faults of the generate stage."""


class GenerateError(Exception):
    """Base class; `retryable` says whether generating the shard again may help."""

    retryable = False


class UploadRejected(GenerateError):
    """A node's file is not what was asked for; another attempt, perhaps elsewhere, may be."""

    retryable = True

    def __init__(self, shard_id: str, node_id: str, problem: str):
        super().__init__(
            f"upload of shard {shard_id} from node {node_id} refused: {problem}. "
            "Nothing was committed; the shard is generated again"
        )


class NothingToPlan(GenerateError):
    """A phase without traces."""

    def __init__(self, phase: str):
        super().__init__(
            f"the {phase} phase has no task to answer: collect more tasks, "
            "or choose sft.select = 'all'"
        )
