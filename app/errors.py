"""What can go wrong, in the domain's words. Knows no HTTP; every text here is safe to show to the caller.

AppError
├── Invalid               the input is not of the documented form
├── Unauthenticated       no usable credential
├── Forbidden             a good credential without the right
├── NotFound              no such thing for this caller
├── Conflict              a unique value is taken, or the state does not allow it
│   └── IdempotencyMismatch
├── PreconditionFailed    somebody else changed it first
├── RateLimited
├── QuotaExceeded
└── Unavailable           the database cannot answer now
    ├── ConnectionLost    … any more: what was asked may have been done, or not
    └── NothingDone       … and has done nothing of what was asked
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Issue:
    """One fault of an input: `path` names the field (`body.limit`), `message` says what is allowed."""

    path: str
    message: str


class AppError(Exception):
    """An expected failure. Its text may be shown to the caller."""


class Invalid(AppError):
    """The input is not of the documented form; `issues` names each field at fault."""

    def __init__(self, message: str, *issues: Issue) -> None:
        super().__init__(message)
        self.issues = issues

    @classmethod
    def field(cls, path: str, message: str) -> "Invalid":
        """Return the error for one field at fault."""
        return cls(f"{path}: {message}", Issue(path, message))


class Unauthenticated(AppError):
    """There is no usable credential: none, malformed, unknown, expired or revoked. The caller is not told which."""

    def __init__(self, message: str = "A valid API key or access token is needed.") -> None:
        super().__init__(message)


class Forbidden(AppError):
    """The credential is good, and does not allow this."""


class NotFound(AppError):
    """There is no such thing for this caller: what belongs to others reads exactly the same."""

    def __init__(self, noun: str) -> None:
        super().__init__(f"There is no such {noun}.")


class Conflict(AppError):
    """A unique value is taken, or the state does not allow the change."""


class IdempotencyMismatch(Conflict):
    """The Idempotency-Key was used for another request, or that request is still in flight."""


class PreconditionFailed(AppError):
    """The resource is no longer the one that If-Match names."""


class RateLimited(AppError):
    """Too many requests with this key; `retry_after_seconds` says when to come back."""

    def __init__(self, message: str, *, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class QuotaExceeded(AppError):
    """The monthly allowance of this key is used up."""


class Unavailable(AppError):
    """The database cannot answer at the moment; asking again in `retry_after_seconds` makes sense."""

    def __init__(self, message: str, *, retry_after_seconds: int = 1) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class ConnectionLost(Unavailable):
    """The database went away in the middle: reading may be tried again, of writing nobody knows whether it was done."""


class NothingDone(Unavailable):
    """The database undid, or never began, what was asked: it may be tried again at once."""
