"""Faults of the pool, told apart by what a caller should do next."""


class PoolError(Exception):
    """Base class; `retryable` says whether the same job may succeed when it is given out again."""

    retryable = False


class PoolClosed(PoolError):
    """The pool does not take jobs any more."""

    def __init__(self, job_id: str):
        super().__init__(
            f"job {job_id}: the pool is closed; start it (`with pool:`) before jobs are submitted"
        )


class NodeLost(PoolError):
    """The nodes that had the job died, one after the other."""

    retryable = True

    def __init__(self, job_id: str, attempts: int, tail: str):
        super().__init__(
            f"job {job_id}: {attempts} nodes in a row died while they had it. "
            f"Last words of the last one: {tail or '(none)'}. "
            "Give the nodes more memory, or make batches smaller"
        )


class JobFailed(PoolError):
    """The node is fine, the job raised there."""

    def __init__(self, job_id: str, node_id: str, kind: str, message: str):
        super().__init__(f"job {job_id} failed on node {node_id}: {kind}: {message}")
        self.kind = kind


class BrokenLedger(PoolError):
    """The chain of the ledger does not hold."""

    def __init__(self, fault: str, where: str):
        super().__init__(
            f"ledger {where}: {fault}. Nothing is appended to it; find out who changed it, "
            "`tracemill pool ledger verify` says what else is wrong"
        )


class LedgerTaken(PoolError):
    """Two processes write to one ledger."""

    def __init__(self, seq: int, where: str):
        super().__init__(
            f"ledger {where}: entry {seq} was written by another process; a ledger has one writer, "
            "the pool's service where there is one. Stop the other, or report to it"
        )
