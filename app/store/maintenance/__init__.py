"""Looking after a database: is it whole, what mends it, what keeps it small. One contract, one module per dialect."""

from collections.abc import Callable
from typing import Final, Protocol

from sqlalchemy import Connection

from app.store.database import Database

REBUILD: Final = "run `cmem-server fts rebuild`"

GoOn = Callable[[], None]
"""Called between the turns; raises to end the work where it is."""


class Care(Protocol):
    """The contract of a dialect's module."""

    def faults(self, database: Database) -> list[str]:
        """Return every fault, each with what mends it: pages, foreign keys, triggers, full text."""

    def damaged_pages(self, connection: Connection, *, limit: int) -> list[str]:
        """Return what the database itself says of damage on its disk."""

    def orphans(self, connection: Connection) -> list[tuple[str, str]]:
        """Return rows without their parent: table, and what is known of the row."""

    def differing_objects(self, connection: Connection) -> list[str]:
        """Return the names of what the migrations installed beside tables and is absent, altered, or not theirs."""

    def is_full_text_whole(self, database: Database) -> bool:
        """Compare the index with every memory."""

    def is_full_text_in_step(self, connection: Connection) -> bool:
        """Say cheaply whether full text looks right: what was installed is there, and as many indexed as kept."""

    def differs_behind(self, connection: Connection, seq: int) -> tuple[bool, int]:
        """Look at the next memory behind `seq`; return whether it is not indexed as it should be, and its own `seq`."""

    def rebuild(self, database: Database, progress: Callable[[int], None]) -> int:
        """Index every memory anew while others go on, mend what differs; return how many memories were indexed.

        Interrupted, it begins again the next time; run twice, it changes nothing.
        """

    def merge_full_text(self, database: Database, go_on: GoOn) -> None:
        """Leave no words of deleted memories in the index."""

    def give_pages_back(self, database: Database, go_on: GoOn) -> int:
        """Give room that is free back, as far as others need not wait for it; return how many pages."""

    def refresh_statistics(self, database: Database) -> None:
        """Let the query planner look again where that is worthwhile."""

    def fold_log_in(self, database: Database) -> bool:
        """Empty the log, where there is one; False when readers held it."""

    def free_share(self, connection: Connection) -> tuple[int, int]:
        """Return how many pages are free, and how many there are."""

    def sizes(self, database: Database) -> dict[str, int]:
        """Return the bytes on disk, by name: `database`, and `wal` where the log lies beside it."""
