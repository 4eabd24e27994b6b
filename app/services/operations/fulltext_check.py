"""Consistency checks of the database and its full-text index, and the repairer that runs in the background."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog
from sqlalchemy import Connection, func

from app.services.memories import context_text
from app.store.database import Database
from app.store.maintenance import dialects
from app.store.models import memory_items
from app.store.schema import migrations
from app.store.scope import unscoped

_log = structlog.get_logger(__name__)

SLICE_ROWS: Final = 50
"""About 0.2 s when every word is common. At one slice every 10 s: 2 % of one core, 100,000 memories in 6 hours."""
_SLICE_SECONDS: Final = 0.2
"""A slice ends early after this: one memory that repeats a word 10,000 times takes as long as fifty others."""
_PAUSE_FACTOR: Final = 50
"""Throttle: after a slow slice, sleep 50 times its duration (about 2 % of one core)."""


class _RebuildStopped(Exception):
    """The server is stopping."""


def faults(database: Database) -> list[str]:
    """Return every fault and its remedy: revision, tables, triggers, full text, foreign keys, pages."""
    revision = migrations.current(database.url)
    if revision != migrations.head():
        return [f"the database is at revision {revision}, expected {migrations.head()}: run `cmem-server db upgrade`"]
    drift = [f"a table differs from the models: {change}" for change in migrations.drift(database.url)]
    return [*drift, *dialects.of(database.dialect).faults(database)]


def is_full_text_whole(database: Database) -> bool:
    """Compare the full-text index with every memory, and the installed triggers and views with the migrations."""
    backend = dialects.of(database.dialect)
    with database.read() as connection:
        is_as_installed = not backend.differing_objects(connection)
    return is_as_installed and backend.is_full_text_intact(database)


def rebuild_full_text(database: Database, progress: Callable[[int], None]) -> int:
    """Rebuild the full-text index and all context text while the server runs; return the number of memories."""
    context_text.refresh_all(database)
    return dialects.of(database.dialect).rebuild(database, progress)


class FullTextRepairer:
    """Checks full text while the server runs: first with cheap counts, then word by word, one slice per call."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._backend = dialects.of(database.dialect)
        self._checked_up_to = 0
        self._next_check_seconds = 0.0
        self._stopping = False

    def check(self) -> None:
        """Check the next slice, and the counts before the first one; rebuild the index when it differs."""
        if time.monotonic() < self._next_check_seconds:
            return
        before = self._checked_up_to
        with self._database.read() as connection:
            differs = before == 0 and not self._backend.is_full_text_plausible(connection)
            differs = differs or self._slice_differs(connection)
        if differs:
            self._rebuild()
        elif self._checked_up_to == before:
            self._checked_up_to = 0

    def stop(self) -> None:
        """Interrupt a rebuild; it starts over after the next start."""
        self._stopping = True

    def _slice_differs(self, connection: Connection) -> bool:
        """Look up memory after memory until the slice or its time is used up; say whether one was not found."""
        started = time.monotonic()
        for _ in range(SLICE_ROWS):
            differs, seq = self._backend.next_memory_differs(connection, self._checked_up_to)
            if differs or seq == self._checked_up_to:
                return differs
            self._checked_up_to = seq
            if (took := time.monotonic() - started) > _SLICE_SECONDS:
                self._next_check_seconds = started + took + took * _PAUSE_FACTOR
                break
        return False

    def _rebuild(self) -> None:
        _log.warning("full_text_differs", mended_by="rebuilding")
        with suppress(_RebuildStopped):
            _log.info("full_text_rebuilt", memories=self._backend.rebuild(self._database, self._raise_if_stopping))
        self._checked_up_to = 0

    def _raise_if_stopping(self, _: int) -> None:
        if self._stopping:
            raise _RebuildStopped


def count_memories(database: Database) -> int:
    """Return the number of memories of all teams."""
    with database.read() as connection:
        return connection.scalar(unscoped(memory_items, func.count(memory_items.c.seq))) or 0
