"""The full-text module of each dialect."""

from typing import cast

from app.store.fulltext import FullText, postgresql, sqlite


def of(dialect: str) -> FullText:
    """Return the full-text module of a dialect."""
    return cast("FullText", postgresql if dialect == "postgresql" else sqlite)
