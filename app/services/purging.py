"""Removing much: in batches, each a short transaction of its own, so that nobody waits long for the write lock."""

from app.caller import Caller
from app.services import audit, projects
from app.store.database import Database


def remove_memories(database: Database, caller: Caller, project_id: str) -> int:
    """Delete every memory of a project; return how many. Run again after an interruption, it goes on."""
    removed = 0
    while batch := _remove_some(database, caller, project_id):
        removed += batch
    with database.write() as connection:
        projects.get(connection, caller, project_id)
        audit.record(
            connection, caller, "project.purge", target=("project", project_id), project_id=project_id, count=removed
        )
    return removed


def remove_project(database: Database, caller: Caller, project_id: str) -> None:
    """Delete a project: first its many memories and events in batches, then the rest at once."""
    while _remove_some(database, caller, project_id):
        pass
    with database.write() as connection:
        projects.remove(connection, caller, project_id)


def _remove_some(database: Database, caller: Caller, project_id: str) -> int:
    with database.write() as connection:
        return projects.purge_some(connection, caller, project_id)
