"""Which module looks after which kind of database."""

from typing import cast

from app.store.maintenance import Care, postgresql, sqlite


def of(dialect: str) -> Care:
    """Return the care of a dialect, by the name that a connection's has."""
    return cast("Care", postgresql if dialect == "postgresql" else sqlite)
