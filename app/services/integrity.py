"""Is the database whole? Each fault is one sentence that says what to do about it."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog
from sqlalchemy import func

from app.services import neighbours
from app.store import migrations
from app.store.database import Database
from app.store.fulltext import care, rebuilding
from app.store.models import memory_items
from app.store.scope import every

_log = structlog.get_logger(__name__)

SLICE_ROWS: Final = 50
"""Looked up in about 0.2 s where every word is common: two hundredths of a core, and 100,000 memories in some hours."""


class _Stopped(Exception):
    """The server stops."""


def faults(database: Database) -> list[str]:
    """Return what is wrong: revision, tables, triggers, full text, foreign keys, pages. Empty when all is well."""
    revision = migrations.current(database.url)
    if revision != migrations.head():
        return [f"the database is at revision {revision}, needed is {migrations.head()}: run `cmem-server db upgrade`"]
    drift = [f"a table differs from the models: {change}" for change in migrations.drift(database.url)]
    return [*drift, *care.faults(database)]


def is_full_text_whole(database: Database) -> bool:
    """Compare full text with every memory, and what the migrations installed with what is there."""
    with database.read() as connection:
        is_as_installed = not care.differing_objects(connection)
    return is_as_installed and care.is_full_text_whole(database)


def rebuild_full_text(database: Database, progress: Callable[[int], None]) -> int:
    """Index every memory anew while the server goes on, with what its neighbours lend it; return how many."""
    neighbours.refresh_all(database)
    return rebuilding.rebuild(database, progress)


class Healing:
    """Looks after full text while a server runs: at a glance first, then word by word, a slice at each look."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._looked_at = 0
        self._stopping = False

    def look(self) -> None:
        """Check the next slice, at a glance before the first one; rebuild full text when it differs."""
        with self._database.read() as connection:
            differs = self._looked_at == 0 and not care.is_full_text_in_step(connection)
            before = self._looked_at
            if not differs:
                differs, self._looked_at = care.differs_behind(connection, before, rows=SLICE_ROWS)
        if differs:
            self._mend()
        elif self._looked_at == before:
            self._looked_at = 0

    def stop(self) -> None:
        """Interrupt a rebuild; it begins again after the next start."""
        self._stopping = True

    def _mend(self) -> None:
        _log.warning("full_text_differs", mended_by="rebuilding")
        with suppress(_Stopped):
            _log.info("full_text_rebuilt", memories=rebuilding.rebuild(self._database, self._go_on))
        self._looked_at = 0

    def _go_on(self, _: int) -> None:
        if self._stopping:
            raise _Stopped


def count_memories(database: Database) -> int:
    """Return how many memories there are in all."""
    with database.read() as connection:
        return connection.scalar(every(memory_items, func.count())) or 0
