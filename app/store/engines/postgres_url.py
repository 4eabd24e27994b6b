"""PostgreSQL URLs, with the one psycopg option that SQLAlchemy does not take from a URL."""

from typing import Any, Final

from sqlalchemy import URL, make_url

_PREPARE_THRESHOLD: Final = "prepare_threshold"
CONNECT_TIMEOUT_SECONDS: Final = 5
"""How long to wait for a server that does not answer."""

_OPTIONS: Final[dict[str, Any]] = {"connect_timeout": CONNECT_TIMEOUT_SECONDS}


def parse_url(url: str) -> tuple[URL, dict[str, Any]]:
    """Split a URL into SQLAlchemy's and the driver's options: `?prepare_threshold=none` disables prepared statements.

    A pooler that gives each transaction another connection needs that, unless it tracks prepared statements itself.
    """
    address = make_url(url)
    if (value := address.query.get(_PREPARE_THRESHOLD)) is None:
        return address, _OPTIONS.copy()
    threshold = None if value == "none" else int(str(value))
    return address.difference_update_query([_PREPARE_THRESHOLD]), {**_OPTIONS, _PREPARE_THRESHOLD: threshold}
