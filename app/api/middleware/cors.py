"""Which web pages may call this server from a browser: none, unless the operator lists their origins."""

from litestar.config.cors import CORSConfig

_REQUEST_HEADERS = ["Authorization", "Content-Type", "Idempotency-Key", "If-Match", "X-Api-Key", "X-Request-Id"]
_RESPONSE_HEADERS = [
    "ETag",
    "Idempotent-Replayed",
    "Location",
    "Retry-After",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "X-Request-Id",
]


def cors_config(origins: list[str]) -> CORSConfig | None:
    """Return the CORS rules for these origins; None, which sends no CORS headers at all, when there are none.

    The browser's own credentials are never allowed: a page sends its API key itself.
    """
    if not origins:
        return None
    return CORSConfig(
        allow_origins=origins,
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=_REQUEST_HEADERS,
        expose_headers=_RESPONSE_HEADERS,
    )
