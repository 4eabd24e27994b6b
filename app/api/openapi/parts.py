"""The parts of the OpenAPI document that routes share: errors, headers, security and tags. Knows no route."""

from collections.abc import Mapping, Set
from typing import Any, Final

from litestar.handlers import HTTPRouteHandler

from app.api.http.error_responses import PROBLEM_JSON

DESCRIPTION: Final = """\
A team memory server for AI coding agents. Send an API key as `Authorization: Bearer cmem_…` or `X-Api-Key: cmem_…`.

Times are integer epoch milliseconds in UTC. Ids are opaque. Unknown keys are rejected, in bodies and in queries.
Lists are paginated: pass `nextCursor` as `cursor` until it is null. HEAD works like GET, without the body.
An `X-Request-Id` that you send is used and returned; otherwise one is generated.
Errors are RFC 9457 problem details with a stable code in `error`."""

SECURITY_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key (`cmem_…`) or an access token."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "An API key (`cmem_…`)."},
}

_TAGS: Final = {
    "health": "Liveness, readiness and version.",
    "auth": "Short-lived access tokens, and who a credential belongs to.",
    "teams": "The tenants of this server.",
    "members": "Who belongs to a team, and in which role.",
    "keys": "API keys.",
    "projects": "The projects that a team works on.",
    "sessions": "Runs of an agent.",
    "events": "What agents' hooks report.",
    "memories": "Create, read, update, delete and list memories.",
    "search": "Memories that answer a question, as a list or as text for a prompt.",
    "vectors": "The state of the vector index, and its repair.",
    "operations": "Progress and results of background jobs.",
    "audit": "Who did what.",
    "usage": "How many requests were made.",
}
FILTERS: Final = {
    "platformSource": "Only from this platform: `claude`, `codex`, `cursor` or another name.",
    "serverSessionId": "Only from this session.",
    "orderBy": "Order by time of creation.",
}

IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Makes retries safe: kept for 24 hours per API key; a repeat returns what the first request made.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[\\x21-\\x7e]+$"},
    "example": "5f1c2a9e",
}


def _header(description: str, example: str, **schema: Any) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "string", **schema}, "example": example}


def _count(description: str, example: int) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "integer", "minimum": 0}, "example": example}


HEADERS: Final = {
    "X-Request-Id": _header(
        "Identifies this request in the logs and in the audit log.", "01a22c63-b1fc-7813-98f9-1fade3cc7b40"
    ),
    "ETag": _header("The version, for `If-Match`.", '"3"'),
    "Location": _header("The path of the new resource.", "/v1/memories/01a22c63-b1fc-7813-98f9-1fade3cc7b3f"),
    "Idempotent-Replayed": _header("Present if the `Idempotency-Key` was used before.", "true", const="true"),
    "WWW-Authenticate": _header("How to authenticate.", 'Bearer realm="cmem-server"'),
    "Retry-After": _count("Seconds to wait before the next attempt.", 1),
    "X-RateLimit-Limit": _count("Requests per minute, if there is a limit.", 600),
    "X-RateLimit-Remaining": _count("Requests left in this minute, if there is a limit.", 599),
    "X-RateLimit-Reset": _count("Seconds until the full limit is available again, if there is a limit.", 60),
}
_RATE_LIMITS: Final = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")

_ERROR_NAMES: Final = {
    400: ("BadRequest", "The request is malformed or invalid; `issues` lists the fields."),
    401: ("Unauthorized", "No valid credential."),
    402: ("QuotaExceeded", "The monthly quota is used up."),
    403: ("Forbidden", "The credential does not permit this."),
    404: ("NotFound", "It does not exist, or is not visible to the caller."),
    409: (
        "Conflict",
        "A unique value is taken, the state does not allow it, or the Idempotency-Key was used for another request.",
    ),
    412: ("PreconditionFailed", "The resource has changed since the version in `If-Match`."),
    413: ("PayloadTooLarge", "The body is too large."),
    415: ("UnsupportedMediaType", "The media type or the encoding of the body is not supported."),
    429: ("RateLimited", "Too many requests."),
    500: ("Internal", "A bug in the server, logged with the request id."),
    503: ("Unavailable", "The database is temporarily unavailable."),
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
    """Return the reference to an error response."""
    return {"$ref": f"#/components/responses/{_ERROR_NAMES[status][0]}"}


def tags(used: Set[str]) -> list[dict[str, str]]:
    """Return the tags in use with their descriptions, those a newcomer needs first at the top."""
    order = [*_TAGS, *sorted(used - _TAGS.keys())]
    return [{"name": name, "description": _TAGS.get(name, name)} for name in order if name in used]


def security(scope: str | None) -> list[dict[str, list[str]]]:
    """Return the security requirements of a route: either kind of credential, with the scope that the route needs."""
    scopes = [scope] if scope else []
    return [{"bearer": scopes}, {"apiKey": scopes}]


def success_headers(opt: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers of a successful reply, from the options of its handler."""
    options = {"versioned": "ETag", "located": "Location", "idempotent": "Idempotent-Replayed"}
    limits = () if opt.get("public") else _RATE_LIMITS
    return _headers(*(header for option, header in options.items() if opt.get(option)), *limits)


def possible_errors(handler: HTTPRouteHandler) -> set[int]:
    """Return the error statuses that a route can answer with, derived from what it takes."""
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
