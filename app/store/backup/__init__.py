"""A copy of one moment of a database that others write to, and how it takes a database's place.

One contract, one module per dialect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.errors import AppError

Rows = dict[str, int]
"""How many rows each table has."""

Progress = Callable[[int, int], None]
"""Told how much is done, of how much."""


class BackupError(AppError):
    """The backup, or what it is of, is not whole, or cannot be used here."""


@dataclass(frozen=True, slots=True)
class Content:
    """What was found in a backup when all of it was read."""

    rows: Rows
    revision: str | None


@dataclass(frozen=True, slots=True)
class Address:
    """A database, and how the server reaches it, where that is as another role."""

    url: str
    server_url: str


class Copying(Protocol):
    """The contract of a dialect's module. What cannot be done is a BackupError."""

    def copy(self, url: str, target: Path, progress: Progress) -> Rows:
        """Copy the database as it is now into the file `target`, which its owner alone may read; writers go on."""

    def content(self, backup: Path) -> Content:
        """Read all of a backup, and check it as far as a file can be."""

    def brought(self, backup: Path, url: str) -> Path:
        """Bring a backup to where it can take the database's place; return what is to be checked and put there."""

    def replace(self, incoming: Path, address: Address, expected: Rows, in_place: Callable[[], None]) -> None:
        """Put it in the database's place, at head and checked; the old data are back when anything fails.

        `in_place` is called when the new data stand there, and are about to be checked.
        """
