"""Writes a copy into PostgreSQL: its progress is recorded in the same transactions as the rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, text

from app.store.database import Database
from app.store.models import audit_log, memory_items, metadata
from app.store.scope import unscoped

_BEGUN: Final = "begun"
_FINISHED: Final = "finished"
SEQUENCED_TABLES: Final = (memory_items, audit_log)
"""The tables whose rows the database numbers."""

_STATISTICS_DIFFER: Final = """
    SELECT EXISTS (
      SELECT 1 FROM (SELECT project_id, team_id, count(*) AS memories FROM memory_items GROUP BY project_id, team_id)
        AS counted
      FULL JOIN project_statistics AS kept USING (project_id, team_id)
      WHERE coalesce(counted.memories, 0) <> coalesce(kept.memories, 0)
    )"""
_NOT_ENQUEUED: Final = """
    SELECT count(*) FROM memory_items AS m
    WHERE NOT EXISTS (SELECT 1 FROM vector_outbox AS o WHERE o.memory_id = m.id AND o.operation = 'upsert')"""


@contextmanager
def writing(database: Database) -> Iterator[Connection]:
    """Yield a connection to write one batch, without a time limit: indexing its words may take long."""
    with database.write() as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        yield connection


def copied_from(connection: Connection) -> str | None:
    """Return the identity of the source whose copy was begun here, or None."""
    query = text("SELECT source FROM copied_from WHERE step = :step")
    identity: str | None = connection.scalar(query, {"step": _BEGUN})
    return identity


def copied_rows(connection: Connection) -> dict[str, int]:
    """Return the number of rows copied so far, by step."""
    return {row.step: row.rows for row in connection.execute(text("SELECT step, rows FROM copied_from"))}


def is_finished(connection: Connection) -> bool:
    """Say whether the copy was completed."""
    return _FINISHED in copied_rows(connection)


def non_empty_tables(connection: Connection) -> list[str]:
    """Return the names of the tables that have rows."""
    return [
        table.name
        for table in metadata.sorted_tables
        if connection.execute(unscoped(table).limit(1)).first() is not None
    ]


def begin(connection: Connection, source: str) -> None:
    """Record which source this database becomes a copy of."""
    record_progress(connection, source, _BEGUN, 0)


def finish(connection: Connection, source: str) -> None:
    """Record that the copy is complete."""
    record_progress(connection, source, _FINISHED, 0)


def record_progress(connection: Connection, source: str, step: str, rows: int) -> None:
    """Record how many rows of a step are copied, in the transaction that copied them."""
    connection.execute(
        text(
            "INSERT INTO copied_from (step, source, rows) VALUES (:step, :source, :rows)"
            " ON CONFLICT (step) DO UPDATE SET rows = excluded.rows"
        ),
        {"step": step, "source": source, "rows": rows},
    )


def advance_sequence(connection: Connection, table: str, highest: int) -> None:
    """Make the next row's number higher than `highest`, and than every number that was assigned here."""
    if highest:
        sequence = "pg_get_serial_sequence(:table, 'seq')::regclass"
        statement = f"SELECT setval({sequence}, greatest(:highest, coalesce(pg_sequence_last_value({sequence}), 0)))"
        connection.execute(text(statement), {"table": table, "highest": highest})


def clear_outbox(connection: Connection, *, but: Sequence[str]) -> None:
    """Delete the outbox entries that triggers added, except those of these memories."""
    statement = text("DELETE FROM vector_outbox WHERE memory_id <> ALL(CAST(:kept AS text[]))")
    connection.execute(statement, {"kept": list(but)})


def find_derived_faults(connection: Connection, *, all_enqueued: bool) -> list[str]:
    """Return what triggers should have derived from the copied rows, and did not."""
    faults = []
    if connection.scalar(text(_STATISTICS_DIFFER)):
        faults.append("project_statistics: the counts differ from the memories")
    if all_enqueued and (missing := connection.scalar(text(_NOT_ENQUEUED))):
        faults.append(f"vector_outbox: {missing} memories are not waiting to be mirrored")
    return faults
