"""PostgreSQL: `pg_dump` reads one snapshot; `pg_restore` reads it back, and one transaction puts it in place.

Inside of that transaction the old tables are dropped, the new ones are made, upgraded, granted and checked. So whoever
looks sees the old data or the new, whole, and what is killed or fails on the way did not happen.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from sqlalchemy import Connection, text

from app.store.backup import Address, BackupError, Content, Progress, Rows, archive, files
from app.store.backup.programs import environment, program, run
from app.store.engines.pipelining import driver
from app.store.engines.rls_context import EVERY_TEAM
from app.store.maintenance import REBUILD
from app.store.maintenance import postgresql as care
from app.store.models import metadata
from app.store.schema import migrations, objects
from app.store.schema import postgresql as schema

_LOCK_WAIT: Final = "30s"
_BESIDE: Final = ("memory_items_fts", "installed_objects", "alembic_version", "copied_from")
"""Our tables that are no models."""
_FUNCTIONS: Final = (
    "SELECT oid::regprocedure::text FROM pg_proc"
    " WHERE pronamespace = current_schema()::regnamespace AND proname ~ '^(cmem|trg)_'"
)
_TABLES: Final = (
    "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' ORDER BY 1"
)


def copy(url: str, target: Path, progress: Progress) -> Rows:
    """Let `pg_dump` write the database as it is now; return its rows by table, counted in the same snapshot."""
    if migrations.current(url) is None:
        raise BackupError("The database holds nothing of cmem-server.")
    with files.private(target):
        pass
    with _snapshot(url) as connection:
        _require_walls(connection)
        _require_full_text(connection)
        rows = _row_counts(connection)
        _dump(connection, url, target, len(rows), progress)
    files.sync(target)
    return rows


def content(backup: Path) -> Content:
    """Let `pg_restore` read every row of an archive."""
    return archive.content(backup)


def brought(backup: Path, url: str) -> Path:
    """Leave the backup where it is: its rows are counted again when they are in place."""
    del url
    return backup


def replace(incoming: Path, address: Address, expected: Rows, in_place: Callable[[], None]) -> None:
    """Drop the old tables and make the new ones in one transaction, which commits when they have passed the checks."""
    with schema.alone(address.url), schema.connected(address.url) as connection, _refusals_named():
        _without_limits(connection)
        _drop_ours(connection)
        connection.execute(text("CREATE EXTENSION IF NOT EXISTS btree_gin"))
        archive.load(driver(connection), incoming, _schema(connection))
        _without_limits(connection)
        in_place()
        connection.execute(text(f"ANALYZE {', '.join(expected)}"))
        objects.put_back(connection)
        _require_rows(connection, expected)
        _require_full_text(connection)
        migrations.upgrade_within(connection)
        schema.grant_within(connection, schema.role_to_grant(address.url, address.server_url))
        connection.commit()


@contextmanager
def _snapshot(url: str) -> Iterator[Connection]:
    """Yield a connection that sees one moment of every team's rows, for as long as it takes."""
    with schema.connected(url) as connection:
        connection.rollback()
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
        _without_limits(connection)
        yield connection


def _dump(connection: Connection, url: str, target: Path, tables: int, progress: Progress) -> None:
    quoted = _schema(connection).replace('"', '""')
    done = 0

    def told(line: bytes) -> None:
        nonlocal done
        if b"dumping contents of table" in line:
            done += 1
            progress(min(done, tables), tables)

    command = [
        program("pg_dump", server=_server_version(connection)),
        *("--format=custom", "--enable-row-security", "--no-owner", "--no-privileges", "--no-password", "--verbose"),
        f"--lock-wait-timeout={_LOCK_WAIT}",
        f'--schema="{quoted}"',
        f"--snapshot={connection.scalar(text('SELECT pg_export_snapshot()'))}",
        f"--file={target}",
    ]
    run(command, environment(url), told)


def _drop_ours(connection: Connection) -> None:
    """Drop what is ours and nothing else; until the transaction commits, the old data stand."""
    for table in (*metadata.tables, *_BESIDE):
        connection.execute(text(f"DROP TABLE IF EXISTS {table} CASCADE"))
    for function in connection.execute(text(_FUNCTIONS)).scalars().all():
        connection.execute(text(f"DROP FUNCTION IF EXISTS {function} CASCADE"))
    connection.execute(text("DROP TEXT SEARCH DICTIONARY IF EXISTS cmem_porter"))


def _without_limits(connection: Connection) -> None:
    """See every team's rows for as long as it takes, and wait for nobody's lock for long."""
    for name, value in (("statement_timeout", "0"), ("idle_in_transaction_session_timeout", "0")):
        connection.execute(text(f"SET LOCAL {name} = {value}"))
    connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}'"))
    connection.execute(text("SELECT set_config('cmem.team_id', :every, true)"), {"every": EVERY_TEAM})


def _require_rows(connection: Connection, expected: Rows) -> None:
    counted = {name: count for name, count in _row_counts(connection).items() if name in expected}
    if counted != expected:
        differing = sorted(name for name in counted | expected if counted.get(name) != expected.get(name))
        raise BackupError(f"Other rows arrived than the backup holds, in {', '.join(differing)}.")


def _require_walls(connection: Connection) -> None:
    """Refuse a table whose policy is gone: it would show no rows at all, and the backup would have none."""
    if wrong := [name for name in objects.differing(connection) if name.startswith(("policy", "row security"))]:
        raise BackupError(f"The database is not whole: {', '.join(wrong)} is not as installed. First {REBUILD}.")


def _require_full_text(connection: Connection) -> None:
    if not care.is_full_text_of(connection):
        raise BackupError(f"The database is not whole: full text differs from the memories. First {REBUILD}.")


def _row_counts(connection: Connection) -> Rows:
    return {name: int(connection.scalar(text(f'SELECT count(*) FROM "{name}"')) or 0) for name in _tables(connection)}  # noqa: S608


def _tables(connection: Connection) -> list[str]:
    return list(connection.execute(text(_TABLES)).scalars())


def _schema(connection: Connection) -> str:
    return str(connection.scalar(text("SELECT current_schema()")))


def _server_version(connection: Connection) -> int:
    return int(connection.scalar(text("SELECT current_setting('server_version_num')::int / 10000")) or 0)


@contextmanager
def _refusals_named() -> Iterator[None]:
    """Say what PostgreSQL has against a statement of the archive."""
    try:
        yield
    except psycopg.Error as cause:
        raise BackupError(f"PostgreSQL refused the backup: {cause}") from cause
