"""PostgreSQL: `pg_dump` writes one snapshot; `pg_restore` reads it, and one transaction swaps it in.

That transaction drops the old tables, creates the new ones, upgrades them, grants rights and checks them. So every
reader sees either the old data or the new, complete; a restore that is killed or fails has changed nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from sqlalchemy import Connection, text

from app.store.backup import BackupContent, BackupError, Progress, RestoreTarget, Rows, archive, files
from app.store.backup.programs import environment, find_program, run
from app.store.engines.pipelining import driver
from app.store.engines.rls_context import EVERY_TEAM
from app.store.maintenance import REBUILD
from app.store.maintenance import postgresql as maintenance
from app.store.models import metadata
from app.store.schema import migrations, objects
from app.store.schema import postgresql as schema

_LOCK_WAIT: Final = "30s"
_OTHER_TABLES: Final = ("memory_items_fts", "installed_objects", "alembic_version", "copied_from")
"""Our tables that are not models."""
_FUNCTIONS: Final = (
    "SELECT oid::regprocedure::text FROM pg_proc"
    " WHERE pronamespace = current_schema()::regnamespace AND proname ~ '^(cmem|trg)_'"
)
_TABLES: Final = (
    "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' ORDER BY 1"
)


def copy(url: str, target: Path, progress: Progress) -> Rows:
    """Let `pg_dump` write a snapshot of the database; return its rows by table, counted in the same snapshot."""
    if migrations.current(url) is None:
        raise BackupError("This is not a database of cmem-server.")
    with files.create_private(target):
        pass
    with _snapshot(url) as connection:
        _require_row_security(connection)
        _require_full_text(connection)
        rows = _row_counts(connection)
        _dump(connection, url, target, len(rows), progress)
    files.fsync(target)
    return rows


def verify(backup: Path) -> BackupContent:
    """Let `pg_restore` read every row of an archive."""
    return archive.read_content(backup)


def stage(backup: Path, url: str) -> Path:
    """Leave the backup where it is: its rows are counted again once they are loaded."""
    del url
    return backup


def swap(incoming: Path, target: RestoreTarget, expected: Rows, on_swapped: Callable[[], None]) -> None:
    """Replace the old tables by the new ones in one transaction, which commits once they have passed the checks."""
    with schema.migration_lock(target.url), schema.connect(target.url) as connection, _wrap_refusals():
        _lift_limits(connection)
        _drop_own_objects(connection)
        connection.execute(text("CREATE EXTENSION IF NOT EXISTS btree_gin"))
        archive.load(driver(connection), incoming, _schema(connection))
        _lift_limits(connection)
        on_swapped()
        connection.execute(text(f"ANALYZE {', '.join(expected)}"))
        objects.reinstall(connection)
        _require_rows(connection, expected)
        _require_full_text(connection)
        migrations.upgrade_within(connection)
        schema.grant_within(connection, schema.role_to_grant(target.url, target.server_url))
        connection.commit()


@contextmanager
def _snapshot(url: str) -> Iterator[Connection]:
    """Yield a connection that sees one snapshot of every team's rows, for as long as needed."""
    with schema.connect(url) as connection:
        connection.rollback()
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
        _lift_limits(connection)
        yield connection


def _dump(connection: Connection, url: str, target: Path, tables: int, progress: Progress) -> None:
    quoted = _schema(connection).replace('"', '""')
    done = 0

    def on_line(line: bytes) -> None:
        nonlocal done
        if b"dumping contents of table" in line:
            done += 1
            progress(min(done, tables), tables)

    command = [
        find_program("pg_dump", server=_server_version(connection)),
        *("--format=custom", "--enable-row-security", "--no-owner", "--no-privileges", "--no-password", "--verbose"),
        f"--lock-wait-timeout={_LOCK_WAIT}",
        f'--schema="{quoted}"',
        f"--snapshot={connection.scalar(text('SELECT pg_export_snapshot()'))}",
        f"--file={target}",
    ]
    run(command, environment(url), on_line)


def _drop_own_objects(connection: Connection) -> None:
    """Drop what is ours and nothing else; others see the old data until the transaction commits."""
    for table in (*metadata.tables, *_OTHER_TABLES):
        connection.execute(text(f"DROP TABLE IF EXISTS {table} CASCADE"))
    for function in connection.execute(text(_FUNCTIONS)).scalars().all():
        connection.execute(text(f"DROP FUNCTION IF EXISTS {function} CASCADE"))
    connection.execute(text("DROP TEXT SEARCH DICTIONARY IF EXISTS cmem_porter"))


def _lift_limits(connection: Connection) -> None:
    """See every team's rows without a time limit, but do not wait long for another client's lock."""
    for name, value in (("statement_timeout", "0"), ("idle_in_transaction_session_timeout", "0")):
        connection.execute(text(f"SET LOCAL {name} = {value}"))
    connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}'"))
    connection.execute(text("SELECT set_config('cmem.team_id', :every, true)"), {"every": EVERY_TEAM})


def _require_rows(connection: Connection, expected: Rows) -> None:
    counted = {name: count for name, count in _row_counts(connection).items() if name in expected}
    if counted != expected:
        differing = sorted(name for name in counted | expected if counted.get(name) != expected.get(name))
        raise BackupError(f"The restored rows differ from the backup, in {', '.join(differing)}.")


def _require_row_security(connection: Connection) -> None:
    """Reject a table without its policy: it would show no rows at all, and the backup would have none."""
    if wrong := [name for name in objects.differing(connection) if name.startswith(("policy", "row security"))]:
        raise BackupError(f"The database is damaged: {', '.join(wrong)} is not as installed. First {REBUILD}.")


def _require_full_text(connection: Connection) -> None:
    if not maintenance.is_full_text_intact_in(connection):
        raise BackupError(f"The database is damaged: full text differs from the memories. First {REBUILD}.")


def _row_counts(connection: Connection) -> Rows:
    return {name: int(connection.scalar(text(f'SELECT count(*) FROM "{name}"')) or 0) for name in _tables(connection)}  # noqa: S608


def _tables(connection: Connection) -> list[str]:
    return list(connection.execute(text(_TABLES)).scalars())


def _schema(connection: Connection) -> str:
    return str(connection.scalar(text("SELECT current_schema()")))


def _server_version(connection: Connection) -> int:
    return int(connection.scalar(text("SELECT current_setting('server_version_num')::int / 10000")) or 0)


@contextmanager
def _wrap_refusals() -> Iterator[None]:
    """Report why PostgreSQL rejects a statement of the archive."""
    try:
        yield
    except psycopg.Error as cause:
        raise BackupError(f"PostgreSQL rejected the backup: {cause}") from cause
