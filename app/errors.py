"""What can go wrong, in the terms of the domain. Knows no HTTP; every text here is safe to show to the client.

AppError
├── Invalid                     the input does not have the documented form
├── Unauthenticated             no usable credential
├── Forbidden                   a valid credential without the permission
├── NotFound                    does not exist, as far as this caller may know
├── Conflict                    a unique value is taken, or the state does not allow the change
│   └── IdempotencyMismatch
├── PreconditionFailed          it has been changed since it was read
├── RateLimited
├── QuotaExceeded
└── Unavailable                 the database cannot answer now
    ├── DatabaseConnectionLost  … and may have done the work or not
    └── NothingDone             … and has done none of the work
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Issue:
    """One fault of an input: `path` names the field (`body.limit`), `message` says what is wrong with it."""

    path: str
    message: str


class AppError(Exception):
    """An expected failure. Its text may be shown to the client."""


class Invalid(AppError):
    """The input does not have the documented form; `issues` names each wrong field."""

    def __init__(self, message: str, *issues: Issue) -> None:
        super().__init__(message)
        self.issues = issues

    @classmethod
    def field(cls, path: str, message: str) -> "Invalid":
        """Return the error for one wrong field."""
        return cls(f"{path}: {message}", Issue(path, message))


class Unauthenticated(AppError):
    """No usable credential: missing, malformed, unknown, expired or revoked. The client does not learn which."""

    def __init__(self, message: str = "A valid API key or access token is required.") -> None:
        super().__init__(message)


class Forbidden(AppError):
    """The credential is valid, but does not allow this."""


class NotFound(AppError):
    """There is no such thing, or it belongs to somebody else: both read exactly the same."""

    def __init__(self, noun: str) -> None:
        super().__init__(f"There is no such {noun}.")


class Conflict(AppError):
    """A unique value is taken, or the state does not allow the change."""


class IdempotencyMismatch(Conflict):
    """The Idempotency-Key was used for another request, or that request is still in progress."""


class PreconditionFailed(AppError):
    """The resource has changed since the version that If-Match names."""


class RateLimited(AppError):
    """Too many requests with this key; retry after `retry_after_seconds`."""

    def __init__(self, message: str, *, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class QuotaExceeded(AppError):
    """The monthly quota of this key is used up."""


class Unavailable(AppError):
    """The database cannot answer at the moment; retry after `retry_after_seconds`."""

    def __init__(self, message: str, *, retry_after_seconds: int = 1) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class DatabaseConnectionLost(Unavailable):
    """The connection broke during the work: a read can be retried, but nobody knows whether a write was committed."""


class NothingDone(Unavailable):
    """The work was rolled back, or never began: it can be retried at once."""
