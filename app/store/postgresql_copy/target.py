"""What a copy does in the PostgreSQL that takes it in: how far it has come is noted with the rows themselves."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, text

from app.store.database import Database
from app.store.models import audit_log, memory_items, metadata
from app.store.scope import every

_BEGUN: Final = "begun"
_FINISHED: Final = "finished"
NUMBERED: Final = (memory_items, audit_log)
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
    """Yield a connection that writes one piece of the copy, however long its words take to index."""
    with database.write() as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        yield connection


def copied_from(connection: Connection) -> str | None:
    """Return what the copy that was begun here is of, None when there was none."""
    begun = text("SELECT source FROM copied_from WHERE step = :step")
    found: str | None = connection.scalar(begun, {"step": _BEGUN})
    return found


def places(connection: Connection) -> dict[str, int]:
    """Return how many rows of each step are here."""
    return {row.step: row.rows for row in connection.execute(text("SELECT step, rows FROM copied_from"))}


def is_finished(connection: Connection) -> bool:
    """Say whether the copy was brought to its end."""
    return _FINISHED in places(connection)


def holds_rows(connection: Connection) -> list[str]:
    """Return the tables that are not empty."""
    return [
        table.name for table in metadata.sorted_tables if connection.execute(every(table).limit(1)).first() is not None
    ]


def begin(connection: Connection, source: str) -> None:
    """Note whose copy this database will be."""
    note(connection, source, _BEGUN, 0)


def finish(connection: Connection, source: str) -> None:
    """Note that everything is here."""
    note(connection, source, _FINISHED, 0)


def note(connection: Connection, source: str, step: str, rows: int) -> None:
    """Note how far a step has come, in the transaction that brought it there."""
    connection.execute(
        text(
            "INSERT INTO copied_from (step, source, rows) VALUES (:step, :source, :rows)"
            " ON CONFLICT (step) DO UPDATE SET rows = excluded.rows"
        ),
        {"step": step, "source": source, "rows": rows},
    )


def number_behind(connection: Connection, table: str, highest: int) -> None:
    """Let the next row be numbered behind every number that was ever given."""
    if highest:
        sequence = "pg_get_serial_sequence(:table, 'seq')::regclass"
        statement = f"SELECT setval({sequence}, greatest(:highest, coalesce(pg_sequence_last_value({sequence}), 0)))"
        connection.execute(text(statement), {"table": table, "highest": highest})


def clear_outbox(connection: Connection, *, but: Sequence[str]) -> None:
    """Take out of the outbox what triggers have put there, but for these memories."""
    statement = text("DELETE FROM vector_outbox WHERE memory_id <> ALL(CAST(:kept AS text[]))")
    connection.execute(statement, {"kept": list(but)})


def derived_faults(connection: Connection, *, all_enqueued: bool) -> list[str]:
    """Return what triggers should have kept of the rows that were copied, and did not."""
    found = []
    if connection.scalar(text(_STATISTICS_DIFFER)):
        found.append("project_statistics: the counts differ from the memories")
    if all_enqueued and (missing := connection.scalar(text(_NOT_ENQUEUED))):
        found.append(f"vector_outbox: {missing} memories are not waiting to be mirrored")
    return found
