"""Removing much: in batches, each a short transaction of its own, so that nobody waits long for the write lock."""

from collections.abc import Callable
from functools import partial

from sqlalchemy import Connection

from app.caller import Caller
from app.services import audit, projects
from app.store.database import Database


def remove_memories(database: Database, caller: Caller, project_id: str) -> int:
    """Delete every memory that a project has now; return how many. Run again after an interruption, it goes on."""
    with database.read() as connection:
        newest = projects.newest_memory(connection, caller, project_id)
    removed = _in_batches(
        database, partial(projects.purge_some, caller=caller, project_id=project_id, up_to_seq=newest)
    )
    with database.write() as connection:
        projects.get(connection, caller, project_id)
        audit.record(
            connection, caller, "project.purge", target=("project", project_id), project_id=project_id, count=removed
        )
    return removed


def remove_project(database: Database, caller: Caller, project_id: str) -> None:
    """Delete a project: first its many memories and events in batches, then the rest at once."""
    with database.read() as connection:
        newest = projects.newest_memory(connection, caller, project_id)
    _in_batches(database, partial(projects.purge_some, caller=caller, project_id=project_id, up_to_seq=newest))
    _in_batches(database, partial(projects.purge_some_events, caller=caller, project_id=project_id))
    with database.write() as connection:
        projects.remove(connection, caller, project_id)


def _in_batches(database: Database, remove_some: Callable[[Connection], int]) -> int:
    """Run a deletion until a batch is not full: writers who go on meanwhile must not keep it busy for ever."""
    removed = 0
    while True:
        with database.write() as connection:
            batch = remove_some(connection)
        removed += batch
        if batch < projects.PURGE_BATCH:
            return removed
