"""Which web pages may call this server from a browser: none, unless the operator names their origins."""

from litestar.config.cors import CORSConfig

_SENT = ["Authorization", "Content-Type", "Idempotency-Key", "If-Match", "X-Api-Key", "X-Request-Id"]
_SHOWN = [
    "ETag",
    "Idempotent-Replayed",
    "Location",
    "Retry-After",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "X-Request-Id",
]


def allowed_from(origins: list[str]) -> CORSConfig | None:
    """Return the CORS rules for these origins; None, which sends no CORS header at all, when there are none.

    Credentials of the browser are never asked for: a key is sent by the page itself.
    """
    if not origins:
        return None
    return CORSConfig(
        allow_origins=origins,
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=_SENT,
        expose_headers=_SHOWN,
    )
