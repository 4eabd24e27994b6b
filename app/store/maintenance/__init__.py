"""Maintains a database: finds damage, repairs it, and keeps the file small. One contract, one module per dialect."""

from collections.abc import Callable
from typing import Final, Protocol

from sqlalchemy import Connection

from app.store.database import Database

REBUILD: Final = "run `cmem-server fts rebuild`"

StopCheck = Callable[[], None]
"""Called between the steps of long work; raises to stop it there."""


class MaintenanceBackend(Protocol):
    """The contract of a dialect's module."""

    def faults(self, database: Database) -> list[str]:
        """Return every fault, with its remedy: pages, foreign keys, triggers, full text."""

    def damaged_pages(self, connection: Connection, *, limit: int) -> list[str]:
        """Return the damage on disk that the database itself detects."""

    def orphans(self, connection: Connection) -> list[tuple[str, str]]:
        """Return rows without their parent, each as its table and a description."""

    def differing_objects(self, connection: Connection) -> list[str]:
        """Return the names of triggers, views and the like that are missing, altered, or not from the migrations."""

    def is_full_text_intact(self, database: Database) -> bool:
        """Compare the index with every memory."""

    def is_full_text_plausible(self, connection: Connection) -> bool:
        """Check full text cheaply: its objects are as installed, and as many memories are indexed as exist."""

    def next_memory_differs(self, connection: Connection, seq: int) -> tuple[bool, int]:
        """Check the first memory after `seq`; return whether it is wrongly indexed, and its own `seq`."""

    def rebuild(self, database: Database, progress: Callable[[int], None]) -> int:
        """Repair what differs and index every memory again while others go on; return the number of memories.

        If interrupted, it starts over the next time; running it twice changes nothing.
        """

    def merge_full_text(self, database: Database, check_stop: StopCheck) -> None:
        """Remove the words of deleted memories from the index."""

    def release_free_pages(self, database: Database, check_stop: StopCheck) -> int:
        """Return free space to the file system as far as others need not wait for it; return the number of pages."""

    def refresh_statistics(self, database: Database) -> None:
        """Update the query planner's statistics where that is worthwhile."""

    def checkpoint_log(self, database: Database) -> bool:
        """Empty the write-ahead log, if there is one; False when readers prevented it."""

    def free_and_total(self, connection: Connection) -> tuple[int, int]:
        """Return the number of free pages (on PostgreSQL: dead rows), and of all."""

    def sizes(self, database: Database) -> dict[str, int]:
        """Return the bytes on disk by name: `database`, and `wal` where there is a separate log file."""
