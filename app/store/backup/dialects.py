"""Which module copies which kind of database."""

from typing import cast

from app.store.backup import Copying, postgresql, sqlite


def of(dialect: str) -> Copying:
    """Return the copying of a dialect."""
    return cast("Copying", postgresql if dialect == "postgresql" else sqlite)
