"""Is the database whole? Each fault is one sentence that says what to do about it."""

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
from app.store.scope import every

_log = structlog.get_logger(__name__)

SLICE_ROWS: Final = 50
"""Looked up in about 0.2 s where every word is common: two hundredths of a core, and 100,000 memories in some hours."""
_SLICE_SECONDS: Final = 0.2
"""A slice ends early after that: one memory of ten thousands of equal words takes as long as fifty others."""
_LOOKS_SHARE: Final = 50
"""A look that took longer rests so many times as long: it keeps to its two hundredths of a core."""


class _Stopped(Exception):
    """The server stops."""


def faults(database: Database) -> list[str]:
    """Return what is wrong: revision, tables, triggers, full text, foreign keys, pages. Empty when all is well."""
    revision = migrations.current(database.url)
    if revision != migrations.head():
        return [f"the database is at revision {revision}, needed is {migrations.head()}: run `cmem-server db upgrade`"]
    drift = [f"a table differs from the models: {change}" for change in migrations.drift(database.url)]
    return [*drift, *dialects.of(database.dialect).faults(database)]


def is_full_text_whole(database: Database) -> bool:
    """Compare full text with every memory, and what the migrations installed with what is there."""
    care = dialects.of(database.dialect)
    with database.read() as connection:
        is_as_installed = not care.differing_objects(connection)
    return is_as_installed and care.is_full_text_whole(database)


def rebuild_full_text(database: Database, progress: Callable[[int], None]) -> int:
    """Index every memory anew while the server goes on, with what its neighbours lend it; return how many."""
    context_text.refresh_all(database)
    return dialects.of(database.dialect).rebuild(database, progress)


class Healing:
    """Looks after full text while a server runs: at a glance first, then word by word, a slice at each look."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._care = dialects.of(database.dialect)
        self._looked_at = 0
        self._look_again_at_seconds = 0.0
        self._stopping = False

    def look(self) -> None:
        """Check the next slice, at a glance before the first one; rebuild full text when it differs."""
        if time.monotonic() < self._look_again_at_seconds:
            return
        before = self._looked_at
        with self._database.read() as connection:
            differs = before == 0 and not self._care.is_full_text_in_step(connection)
            differs = differs or self._slice_differs(connection)
        if differs:
            self._mend()
        elif self._looked_at == before:
            self._looked_at = 0

    def stop(self) -> None:
        """Interrupt a rebuild; it begins again after the next start."""
        self._stopping = True

    def _slice_differs(self, connection: Connection) -> bool:
        """Look memory after memory up, until the slice or its time is over; say whether one is not found."""
        started = time.monotonic()
        for _ in range(SLICE_ROWS):
            differs, seq = self._care.differs_behind(connection, self._looked_at)
            if differs or seq == self._looked_at:
                return differs
            self._looked_at = seq
            if (took := time.monotonic() - started) > _SLICE_SECONDS:
                self._look_again_at_seconds = started + took + took * _LOOKS_SHARE
                break
        return False

    def _mend(self) -> None:
        _log.warning("full_text_differs", mended_by="rebuilding")
        with suppress(_Stopped):
            _log.info("full_text_rebuilt", memories=self._care.rebuild(self._database, self._go_on))
        self._looked_at = 0

    def _go_on(self, _: int) -> None:
        if self._stopping:
            raise _Stopped


def count_memories(database: Database) -> int:
    """Return how many memories there are in all."""
    with database.read() as connection:
        return connection.scalar(every(memory_items, func.count(memory_items.c.seq))) or 0
