"""Shared by the tests of copying: sources with rows, and what is compared."""

import pytest
from sqlalchemy import select

from app.caller import EVERYTHING, Caller, server_owner
from app.services.backup import copy_to_postgresql
from app.services.backup.copy_to_postgresql import CopyReport, Vectors
from app.services.identity import teams
from app.services.memories import memories
from app.services.operations import jobs
from app.services.projects import projects
from app.services.transfer import exporting
from app.store import models
from app.store.database import Database
from app.store.postgresql_copy.plan import TABLES
from tests.conftest import make_key
from tests.services import full_project


def new_team(database: Database, name: str) -> Caller:
    with database.write() as connection:
        return server_owner().within(teams.create(connection, server_owner(), name=name).id)


def copy(source: Database, target: Database, vectors: Vectors = "rebuild") -> CopyReport:
    return copy_to_postgresql.copy(source, target, vectors=vectors, progress=lambda what, done, total: None)


def copy_until(source: Database, target: Database, rows: int) -> None:
    """Copy at least that many rows, then interrupt."""

    def interrupt(what: str, done: int, total: int) -> None:
        if what == "copying" and done >= rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_to_postgresql.copy(source, target, vectors="rebuild", progress=interrupt)


def copied(report: CopyReport) -> dict[str, int]:
    return {name: table.copied for name, table in report.tables.items() if table.copied}


def contents(database: Database) -> dict[str, list[tuple]]:
    """Return all rows of all copied tables, read independently of the code under test."""
    with database.read() as connection:
        return {
            table.name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr) for table in TABLES
        }


def exported(database: Database, caller: Caller) -> bytes:
    with database.read() as connection:
        selected = exporting.select_projects(connection, caller, None)
    return b"".join(exporting.chunks(database, caller, selected))


def outbox(database: Database) -> list[tuple]:
    table = models.vector_outbox.c
    with database.read() as connection:
        statement = select(table.memory_id, table.operation, table.version, table.failed).order_by(table.memory_id)
        return [tuple(row) for row in connection.execute(statement)]


def remember(database: Database, caller: Caller, count: int) -> list[str]:
    """Create a project with this many memories; return their ids."""
    with database.write() as connection:
        project = projects.create(connection, caller, name="p")
        standard = {"project_id": project.id, "kind": "manual", "type": "manual"}
        texts = (f"lighthouse keeper {number}" for number in range(count))
        return [memories.add(connection, caller, memories.NewMemory(**standard, text=each)).memory.id for each in texts]


def remember_many(database: Database, caller: Caller, count: int) -> None:
    """Insert a memory this many times, bypassing the services, which would be slow; close all connections."""
    remember(database, caller, 1)
    with database.write() as connection:
        [row] = connection.execute(select(models.memory_items)).mappings().all()
        own = ({"seq": number, "id": str(number), "content_hash": str(number)} for number in range(2, count + 1))
        connection.execute(models.memory_items.insert(), [{**row, **each} for each in own])
    database.close()


def fill_every_table(database: Database, caller: Caller) -> None:
    """Insert at least one row into every table."""
    full_project.create(database, caller, rows=200)
    make_key(database, caller, scopes=(EVERYTHING,), name="ключ")
    month = {"key_id": "k", "count": 7}
    with database.write() as connection:
        jobs.create(connection, caller, "vectors.verify", project_id=None, arguments={"dryRun": True})
        for table, row in {
            models.team_members: {"user_id": "анна", "role": "owner", "updated_at_epoch": 1},
            models.idempotency_records: {
                "key_id": "k",
                "idempotency_key": "i",
                "route": "r",
                "body_hash": "h",
                "status": 201,
                "ids": ["a", "b"],
            },
            models.audit_retention: {"id": 1, "before_epoch": 5},
            models.usage_counters: {**month, "month": "2026-11", "kind": "requests", "team_id": caller.team_id},
            models.request_counters: {**month, "period": "2026-11", "updated_at_epoch": 1},
        }.items():
            usual = {"team_id": caller.team_id, "created_at_epoch": 1}
            names = table.c.keys()
            values = {name: value for name, value in {**usual, **row}.items() if name in names}
            connection.execute(table.insert().values(values))
