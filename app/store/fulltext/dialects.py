"""Which module searches which kind of database."""

from typing import cast

from app.store.fulltext import FullText, postgresql, sqlite


def of(dialect: str) -> FullText:
    """Return the full text of a dialect, by the name that a connection's has."""
    return cast("FullText", postgresql if dialect == "postgresql" else sqlite)
