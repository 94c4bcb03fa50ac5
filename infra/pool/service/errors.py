"""Refusals of the service, by their HTTP status, and faults that keep it from serving."""

from infra.pool.errors import PoolError


class ServiceError(PoolError):
    """Base class of what an answer refuses a request with."""

    status = 400
    code = "BAD_REQUEST"
    retry_after: float | None = None

    def __init__(self, message: str, code: str = "", headers: dict[str, str] | None = None):
        super().__init__(message)
        self.code = code or self.code
        self.headers = headers or {}


class BadRequest(ServiceError):
    """Malformed, or something that can be no name."""


class Unauthenticated(ServiceError):
    """It does not show who sent it."""

    status = 401
    code = "UNAUTHENTICATED"


class Forbidden(ServiceError):
    """Who sent it may not do that."""

    status = 403
    code = "FORBIDDEN"


class NotThere(ServiceError):
    """There is no such thing."""

    status = 404
    code = "NOT_FOUND"


class TooSlow(ServiceError):
    """The request did not arrive in time."""

    status = 408
    code = "REQUEST_TIMEOUT"


class Conflict(ServiceError):
    """It does not go with what is there."""

    status = 409
    code = "CONFLICT"


class TooLarge(ServiceError):
    """More bytes than are allowed."""

    status = 413
    code = "BODY_TOO_LARGE"


class TooMany(ServiceError):
    """More requests than are allowed; later ones are answered."""

    status = 429
    code = "RATE_LIMIT_EXCEEDED"
    retryable = True

    def __init__(self, message: str, retry_after: float):
        super().__init__(message, headers={"retry-after": str(max(1, round(retry_after)))})


class Unavailable(ServiceError):
    """The service cannot answer now."""

    status = 503
    code = "UNAVAILABLE"
    retryable = True


class StoreTaken(PoolError):
    """Another service took the database over."""

    def __init__(self) -> None:
        super().__init__(
            "another pool service has opened this pool's database and serves it now; this one ends "
            "and changes nothing more. Start one service per database"
        )


class BadSetting(PoolError, ValueError):
    """A setting that the service cannot start with."""
