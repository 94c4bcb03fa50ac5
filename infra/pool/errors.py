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


class NoNodes(PoolError):
    """There is no node, and none will come."""

    def __init__(self, why: str):
        super().__init__(f"the pool has no nodes: {why}")


class JobFailed(PoolError):
    """The job failed again and again, on different nodes where there are some."""

    def __init__(self, job_id: str, reason: str):
        super().__init__(f"job {job_id} failed: {reason}")


class BrokenLedger(PoolError):
    """The chain of the ledger does not hold."""

    def __init__(self, fault: str, where: str):
        super().__init__(
            f"ledger {where}: {fault}. Nothing is appended to it; find out who changed it, "
            "`tracemill pool ledger verify` says what else is wrong"
        )


class LedgerTaken(PoolError):
    """Others write to the ledger without a pause."""

    retryable = True

    def __init__(self, seq: int, where: str):
        super().__init__(
            f"ledger {where}: other processes wrote each entry up to {seq} first. Try again, or "
            "have fewer of them report"
        )


class PoolUnreachable(PoolError):
    """The service does not answer, or says that it cannot now."""

    retryable = True

    def __init__(self, url: str, why: str):
        super().__init__(
            f"pool service {url}: {why[:300]}. Look whether it runs (GET /health) and whether this "
            "machine reaches it"
        )


class NotTrusted(PoolError):
    """The service's certificate is not signed by anybody whom this machine trusts."""

    def __init__(self, url: str, why: str, ca: str):
        hint = f"{ca} is not the PEM of its CA" if ca else "give the PEM of its CA (--ca)"
        super().__init__(
            f"pool service {url}: {why[:200]}; {hint}. The pool's operator has it: ca.pem in "
            "pool-ca of the config directory of the user who serves"
        )


class UnsafeUrl(PoolError):
    """The service wants an upload to go where this machine does not send one."""

    def __init__(self, service: str, url: str):
        super().__init__(
            f"pool service {service} names {url[:100]!r} for an upload; allowed is https://, as it "
            "is reached itself. Its operator has to give the object store TLS"
        )


class RequestRefused(PoolError):
    """The service does not do what was asked of it."""

    def __init__(self, method: str, path: str, status: int, code: str, why: str):
        super().__init__(f"{method} {path} was refused with {status} {code}: {why[:500]}")
        self.status, self.code = status, code
