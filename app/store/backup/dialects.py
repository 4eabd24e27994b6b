"""The backup module of each dialect."""

from typing import cast

from app.store.backup import BackupBackend, postgresql, sqlite


def of(dialect: str) -> BackupBackend:
    """Return the backup module of a dialect."""
    return cast("BackupBackend", postgresql if dialect == "postgresql" else sqlite)
