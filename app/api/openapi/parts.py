"""What routes of the contract have in common: errors, headers, security and the words for them. Knows no route."""

from collections.abc import Mapping, Set
from typing import Any, Final

from litestar.handlers import HTTPRouteHandler

from app.api.http.error_responses import PROBLEM_JSON

DESCRIPTION: Final = """\
A team memory server for AI coding agents. Send an API key as `Authorization: Bearer cmem_…` or `X-Api-Key: cmem_…`.

Times are integer epoch milliseconds, UTC. Ids are opaque. Unknown keys are refused, in bodies and in queries.
Lists are paged: send `nextCursor` as `cursor` until it is null. HEAD answers as GET does, without the body.
An `X-Request-Id` that you send is used and returned, else one is made.
Failures are RFC 9457 problem details with a stable code in `error`."""

SECURITY_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key (`cmem_…`) or an access token."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "An API key (`cmem_…`)."},
}

_TAGS: Final = {
    "health": "Is it alive, is it ready, what is it.",
    "auth": "Short-lived tokens, and who a credential is.",
    "teams": "The tenants of this server.",
    "members": "Who belongs to a team, and in which role.",
    "keys": "API keys.",
    "projects": "What a team works on.",
    "sessions": "One run of an agent.",
    "events": "What agents' hooks report.",
    "memories": "What is remembered.",
    "search": "Memories that answer a question, as a list or as text for a prompt.",
    "vectors": "The state and the repairs of the vector index.",
    "operations": "Long work that was begun: how far it is.",
    "audit": "Who did what.",
    "usage": "How much was asked.",
}
FILTERS: Final = {
    "platformSource": "Only from this platform: claude, codex, cursor, or another name.",
    "serverSessionId": "Only of this session.",
    "orderBy": "By time of creation.",
}

IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Makes a repeat safe: kept 24 hours for this key, and answered with what the first request made.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[\\x21-\\x7e]+$"},
    "example": "5f1c2a9e",
}


def _header(description: str, example: str, **schema: Any) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "string", **schema}, "example": example}


def _count(description: str, example: int) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "integer", "minimum": 0}, "example": example}


HEADERS: Final = {
    "X-Request-Id": _header("Names this exchange in the log and the audit.", "01a22c63-b1fc-7813-98f9-1fade3cc7b40"),
    "ETag": _header("The version, for `If-Match`.", '"3"'),
    "Location": _header("Where it can be read.", "/v1/memories/01a22c63-b1fc-7813-98f9-1fade3cc7b3f"),
    "Idempotent-Replayed": _header("Sent when the `Idempotency-Key` was known.", "true", const="true"),
    "WWW-Authenticate": _header("How to authenticate.", 'Bearer realm="cmem-server"'),
    "Retry-After": _count("Seconds to wait.", 1),
    "X-RateLimit-Limit": _count("Requests a minute, when there is a limit.", 600),
    "X-RateLimit-Remaining": _count("Requests left in this minute, when there is a limit.", 599),
    "X-RateLimit-Reset": _count("Seconds until the limit is whole again, when there is one.", 60),
}
_RATE_LIMITS: Final = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")

_ERROR_NAMES: Final = {
    400: ("BadRequest", "The request is not of the documented form; `issues` names the fields."),
    401: ("Unauthorized", "No, or no usable, credential."),
    402: ("QuotaExceeded", "The monthly quota is used up."),
    403: ("Forbidden", "The credential does not allow this."),
    404: ("NotFound", "There is no such thing for this caller."),
    409: ("Conflict", "A unique value is taken, the state does not allow it, or the Idempotency-Key was used before."),
    412: ("PreconditionFailed", "`If-Match` lost: it has changed since."),
    413: ("PayloadTooLarge", "The body is too large."),
    415: ("UnsupportedMediaType", "The body is of another media type, or encoded."),
    429: ("RateLimited", "Too many requests."),
    500: ("Internal", "A fault of the server, logged under the request id."),
    503: ("Unavailable", "The database cannot answer at the moment."),
}
_ERROR_HEADERS: Final = {401: ("WWW-Authenticate",), 429: ("Retry-After", *_RATE_LIMITS), 503: ("Retry-After",)}


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in ("X-Request-Id", *names)}


def _error(status: int, description: str) -> dict[str, Any]:
    return {
        "description": description,
        "headers": _headers(*_ERROR_HEADERS.get(status, ())),
        "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


ERRORS: Final = {name: _error(status, description) for status, (name, description) in _ERROR_NAMES.items()}


def error_reference(status: int) -> dict[str, Any]:
    """Return what stands for an error in an operation."""
    return {"$ref": f"#/components/responses/{_ERROR_NAMES[status][0]}"}


def tags(used: Set[str]) -> list[dict[str, str]]:
    """Return the tags in use with their descriptions, those of the first steps first."""
    order = [*_TAGS, *sorted(used - _TAGS.keys())]
    return [{"name": name, "description": _TAGS.get(name, name)} for name in order if name in used]


def security(scope: str | None) -> list[dict[str, list[str]]]:
    """Return how a route is let in; the scope it needs stands with each way."""
    wanted = [scope] if scope else []
    return [{"bearer": wanted}, {"apiKey": wanted}]


def success_headers(opt: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers of a reply, from the options of its handler."""
    options = {"versioned": "ETag", "located": "Location", "idempotent": "Idempotent-Replayed"}
    limits = () if opt.get("public") else _RATE_LIMITS
    return _headers(*(header for option, header in options.items() if opt.get(option)), *limits)


def possible_errors(handler: HTTPRouteHandler) -> set[int]:
    """Return the statuses of failures: what a route takes decides which there can be."""
    opt, fields = handler.opt, handler.parsed_fn_signature.parameters
    errors = {500} if opt.get("any_query") else {400, 500}
    if not opt.get("public"):
        errors |= {401, 402, 403, 429, 503}
    if handler.parsed_data_field is not None:
        errors |= {404, 413, 415}
    if handler.parsed_data_field is not None and (opt.get("idempotent") or "PATCH" in handler.http_methods):
        errors.add(409)
    if any("{" in path for path in handler.paths):
        errors.add(404)
    if "if_match" in fields:
        errors.add(412)
    return errors | set(opt.get("errors", ()))
