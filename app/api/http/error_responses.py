"""Any exception becomes one shape. The only place with status codes for failures; nothing internal is ever sent."""

import re
from http import HTTPStatus
from typing import Any, Final

import structlog
from litestar import Response
from litestar.exceptions import HTTPException, ValidationException
from sqlalchemy.exc import IntegrityError

from app import errors
from app.api.http.schemas import IssueView, Problem
from app.services.shared.strict_json import without_echo

_log = structlog.get_logger(__name__)

PROBLEM_JSON: Final = "application/problem+json"

_STATUS: Final[dict[type[errors.AppError], tuple[int, str]]] = {
    errors.Invalid: (400, "ValidationError"),
    errors.Unauthenticated: (401, "Unauthorized"),
    errors.Forbidden: (403, "Forbidden"),
    errors.NotFound: (404, "NotFound"),
    errors.IdempotencyMismatch: (409, "IdempotencyMismatch"),
    errors.Conflict: (409, "Conflict"),
    errors.PreconditionFailed: (412, "PreconditionFailed"),
    errors.RateLimited: (429, "RateLimited"),
    errors.QuotaExceeded: (402, "QuotaExceeded"),
    errors.Unavailable: (503, "Unavailable"),
}
_MISSING: Final = re.compile(r"Missing required (\w+) parameter '([\w-]+)'")
_SNAKE: Final = re.compile(r"_([a-z])")
_BY_STATUS: Final = {
    400: "ValidationError",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "PayloadTooLarge",
    415: "UnsupportedMediaType",
}
_PUBLIC_TEXT: Final = {
    404: "There is no such route.",
    405: "This route does not take that method.",
    413: "The body is too large.",
}


def respond(request: Any, cause: Exception) -> Response[Problem]:
    """Return the reply for an exception; log 4xx at WARN and what is a bug at ERROR with its stack."""
    status, code, message = _meaning(cause)
    if status == 500:
        _log.error("internal_error", exc_info=cause)
    else:
        _log.warning("request_refused", status=status, error=code)
    return Response(
        _problem(request, status, code, message, _issues(cause)),
        status_code=status,
        media_type=PROBLEM_JSON,
        headers=_headers(status, cause),
    )


def _meaning(cause: Exception) -> tuple[int, str, str]:
    for kind in type(cause).__mro__:
        if kind in _STATUS:
            return *_STATUS[kind], str(cause)
    if isinstance(cause, IntegrityError):
        # the services look first; two writers can still meet, and the database has the last word
        return 409, "Conflict", "A unique value is taken, or the state does not allow the change."
    if isinstance(cause, HTTPException) and cause.status_code < 500:
        return cause.status_code, _BY_STATUS.get(cause.status_code, "ValidationError"), _http_text(cause)
    return 500, "Internal", "Something went wrong on the server."


def _http_text(cause: HTTPException) -> str:
    if isinstance(cause, ValidationException):
        faults = [f"{issue.path}: {issue.message}" for issue in _issues(cause)]
        return "; ".join(faults) or "The request is not of the documented form."
    return _PUBLIC_TEXT.get(cause.status_code, cause.detail)


def _issues(cause: Exception) -> list[IssueView]:
    if isinstance(cause, errors.Invalid):
        return [IssueView(path=issue.path, message=issue.message) for issue in cause.issues]
    if isinstance(cause, ValidationException):
        if missing := _MISSING.search(cause.detail):
            return [IssueView(path=f"{missing.group(1)}.{missing.group(2)}", message="needed")]
        return [_issue(fault) for fault in cause.extra or () if isinstance(fault, dict)]
    return []


def _issue(fault: dict[str, Any]) -> IssueView:
    """Return a fault that Litestar found, under the name of the wire and without the value that was sent."""
    place, key = getattr(fault.get("source"), "value", "body"), str(fault.get("key", ""))
    if (place, key) == ("body", "data"):
        return IssueView(path="body", message="needed")
    name = _SNAKE.sub(lambda found: found.group(1).upper(), key)
    return IssueView(path=f"{place}.{name}", message=without_echo(str(fault.get("message", ""))))


def _problem(request: Any, status: int, code: str, message: str, issues: list[IssueView]) -> Problem:
    return Problem(
        type="about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=message,
        instance=request.scope["path"],
        error=code,
        message=message,
        issues=issues,
        request_id=request.scope.get("state", {}).get("request_id", ""),
    )


def _headers(status: int, cause: Exception) -> dict[str, str]:
    if status == 401:
        return {"WWW-Authenticate": 'Bearer realm="cmem-server"'}
    if isinstance(cause, errors.RateLimited | errors.Unavailable):
        return {"Retry-After": str(cause.retry_after_seconds)}
    if isinstance(cause, HTTPException) and cause.headers and status == 405:
        return {name: value for name, value in cause.headers.items() if name.lower() == "allow"}
    return {}
