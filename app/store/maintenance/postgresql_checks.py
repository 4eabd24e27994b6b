"""Checks of a PostgreSQL database: dead rows, connections, and the privileges of the server's role."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, text

from app.store.database import Database
from app.store.maintenance import postgresql
from app.store.maintenance.checks import Check, CheckResult, Role

HAS_ROLES: Final = True
_MAINTAIN: Final = "run `cmem-server maintenance run`"
_START: Final = "start it, or correct CMEM_DATABASE_URL and CMEM_DATABASE_ADMIN_URL"
_DEAD_ROWS_SHARE: Final = 0.5
_FEW_ROWS: Final = 10_000
_CONNECTIONS_SHARE: Final = 0.8


def missing_file(database: Database) -> Path | None:
    """Return None: the database is not a file."""
    del database
    return None


def detects_damaged_pages(connection: Connection) -> bool:
    """Say whether the cluster has data checksums: without them PostgreSQL does not notice what a disk has changed."""
    return bool(connection.scalar(text("SHOW data_checksums")) == "on")


def content_checks(database: Database) -> Sequence[Check]:
    """Return the checks of dead rows and connections."""
    return [
        Check("dead rows", lambda: _dead_rows(database), _MAINTAIN),
        Check("connections", lambda: _connections(database), _START),
    ]


def file_checks(database: Database) -> Sequence[Check]:
    """Return none: PostgreSQL looks after its own files."""
    del database
    return []


def role(connection: Connection) -> Role:
    """Return the role of a connection, and what lets it bypass row-level security."""
    query = text(
        "SELECT rolname, rolsuper, rolbypassrls, EXISTS (SELECT 1 FROM pg_tables"
        " WHERE schemaname = current_schema() AND pg_has_role(tableowner, 'USAGE'))"
        " FROM pg_roles WHERE rolname = current_user"
    )
    name, *flags = connection.execute(query).one()
    described = zip(("is a superuser", "bypasses row-level security", "owns tables"), flags, strict=True)
    return Role(name, [privilege for privilege, is_held in described if is_held])


def _dead_rows(database: Database) -> CheckResult:
    with database.read() as connection:
        dead, rows = postgresql.free_and_total(connection)
    if rows > _FEW_ROWS and dead / rows > _DEAD_ROWS_SHARE:
        return CheckResult("dead rows", "warning", f"{dead / rows:.0%} of the rows are dead", _MAINTAIN)
    return CheckResult("dead rows", "ok", f"{dead} of {rows}")


def _connections(database: Database) -> CheckResult:
    with database.read() as connection:
        used, limit = _connection_counts(connection)
    detail = f"{used} of {limit} are in use"
    if used > limit * _CONNECTIONS_SHARE:
        remedy = "lower CMEM_DATABASE_CONNECTIONS, raise max_connections, or add a pooler such as PgBouncer"
        return CheckResult("connections", "warning", detail, remedy)
    return CheckResult("connections", "ok", detail)


def _connection_counts(connection: Connection) -> tuple[int, int]:
    """Return how many clients are connected to the server, and how many may be.

    Only the database and the role of other roles' clients are visible to this one.
    """
    used, limit = connection.execute(
        text(
            "SELECT (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL AND usesysid IS NOT NULL),"
            " current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
        )
    ).one()
    return int(used), int(limit)
