"""Turns any exception into problem details. The only place with status codes of errors; sends nothing internal."""

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
_MISSING_PARAMETER: Final = re.compile(r"Missing required (\w+) parameter '([\w-]+)'")
_SNAKE_CASE: Final = re.compile(r"_([a-z])")
_CODES: Final = {
    400: "ValidationError",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "PayloadTooLarge",
    415: "UnsupportedMediaType",
}
_PUBLIC_TEXT: Final = {
    404: "There is no such route.",
    405: "This route does not support this method.",
    413: "The body is too large.",
}


def handle_exception(request: Any, cause: Exception) -> Response[Problem]:
    """Return the response for an exception. Logs 4xx as a warning, and a bug as an error with its traceback."""
    status, code, message = _classify(cause)
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


def _classify(cause: Exception) -> tuple[int, str, str]:
    for kind in type(cause).__mro__:
        if kind in _STATUS:
            return *_STATUS[kind], str(cause)
    if isinstance(cause, IntegrityError):
        # the services check first, but of two concurrent writers only the database can tell which came second
        return 409, "Conflict", "A unique value is taken, or the state does not allow the change."
    if isinstance(cause, HTTPException) and cause.status_code < 500:
        return cause.status_code, _CODES.get(cause.status_code, "ValidationError"), _http_text(cause)
    return 500, "Internal", "An unexpected error occurred on the server."


def _http_text(cause: HTTPException) -> str:
    if isinstance(cause, ValidationException):
        issues = [f"{issue.path}: {issue.message}" for issue in _issues(cause)]
        return "; ".join(issues) or "The request does not have the documented form."
    return _PUBLIC_TEXT.get(cause.status_code, cause.detail)


def _issues(cause: Exception) -> list[IssueView]:
    if isinstance(cause, errors.Invalid):
        return [IssueView(path=issue.path, message=issue.message) for issue in cause.issues]
    if isinstance(cause, ValidationException):
        if match := _MISSING_PARAMETER.search(cause.detail):
            return [IssueView(path=f"{match.group(1)}.{match.group(2)}", message="is required")]
        return [_issue(error) for error in cause.extra or () if isinstance(error, dict)]
    return []


def _issue(error: dict[str, Any]) -> IssueView:
    """Return an error that Litestar found, with the name on the wire and without the value that was sent."""
    source, key = getattr(error.get("source"), "value", "body"), str(error.get("key", ""))
    if (source, key) == ("body", "data"):
        return IssueView(path="body", message="is required")
    name = _SNAKE_CASE.sub(lambda match: match.group(1).upper(), key)
    return IssueView(path=f"{source}.{name}", message=without_echo(str(error.get("message", ""))))


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
