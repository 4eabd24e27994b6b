"""Addresses of PostgreSQL, with the one option that psycopg takes and no URL can carry by itself."""

from typing import Any, Final

from sqlalchemy import URL, make_url

_PREPARING: Final = "prepare_threshold"
CONNECT_TIMEOUT_SECONDS: Final = 5
"""A server that does not even answer is given up after this."""

_OPTIONS: Final[dict[str, Any]] = {"connect_timeout": CONNECT_TIMEOUT_SECONDS}


def connecting(url: str) -> tuple[URL, dict[str, Any]]:
    """Return an address and the driver's options: `?prepare_threshold=none` switches prepared statements off.

    A pooler that gives each transaction another connection needs that, unless it keeps track of them itself.
    """
    address = make_url(url)
    if (wanted := address.query.get(_PREPARING)) is None:
        return address, _OPTIONS.copy()
    threshold = None if wanted == "none" else int(str(wanted))
    return address.difference_update_query([_PREPARING]), {**_OPTIONS, _PREPARING: threshold}
