"""Copies a database while others write to it, and swaps a copy in for a database.

One contract, one module per dialect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.errors import AppError

Rows = dict[str, int]
"""The number of rows of each table."""

Progress = Callable[[int, int], None]
"""Called with how much is done, and the total."""


class BackupError(AppError):
    """A backup, or the database to be backed up, is damaged or cannot be used here."""


@dataclass(frozen=True, slots=True)
class BackupContent:
    """What a backup holds, counted by reading all of it."""

    rows: Rows
    revision: str | None


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """The database to restore. `server_url` is how the server connects to it, which may be as another role."""

    url: str
    server_url: str


class BackupBackend(Protocol):
    """The contract of a dialect's module. Every method raises BackupError when it cannot do its work."""

    def copy(self, url: str, target: Path, progress: Progress) -> Rows:
        """Copy a snapshot of the database to the file `target`, readable only by its owner; writers go on."""

    def verify(self, backup: Path) -> BackupContent:
        """Read all of a backup and check it, as far as a file can be checked; return what it holds."""

    def stage(self, backup: Path, url: str) -> Path:
        """Put a backup where it can be swapped in for the database; return the path to check and pass to swap()."""

    def swap(self, incoming: Path, target: RestoreTarget, expected: Rows, on_swapped: Callable[[], None]) -> None:
        """Swap it in for the database, upgrade it to head and check it; on any failure the old data come back.

        `on_swapped` is called when the new data are in place and about to be checked.
        """
