"""Is the database whole? Each fault is one sentence that says what to do about it."""

from collections.abc import Callable

from sqlalchemy import func

from app.store import migrations
from app.store.database import Database
from app.store.fulltext import care, rebuilding
from app.store.models import memory_items
from app.store.scope import every


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
    """Index every memory anew while the server goes on; return how many."""
    return rebuilding.rebuild(database, progress)


def heal(database: Database) -> bool:
    """At start: rebuild full text when it looks wrong at a cheap glance; return whether that was needed."""
    with database.read() as connection:
        if care.is_full_text_in_step(connection):
            return False
    rebuilding.rebuild(database)
    return True


def count_memories(database: Database) -> int:
    """Return how many memories there are in all."""
    with database.read() as connection:
        return connection.scalar(every(memory_items, func.count())) or 0
