"""PostgreSQL migrations: an advisory lock between processes, one transaction, then grants for the server's role.

The role that owns the tables migrates; the server connects as another role, which owns nothing: see `grant`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, create_engine, inspect, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from app.errors import Unavailable
from app.store.engines.postgres_url import parse_url
from app.store.engines.rls_context import EVERY_TEAM
from app.store.models import metadata
from app.store.schema import objects

SCRIPTS: Final = "postgresql"
_LOCK: Final = "hashtextextended('cmem-server migration', 0)"
_LOCK_TIMEOUT: Final = "120s"
_TABLE_LOCK_TIMEOUT: Final = "30s"
"""A migration gives up when it cannot lock a table in this time, because every client would queue behind it."""

_PRIVILEGES: Final = {
    **dict.fromkeys(metadata.tables, "SELECT, INSERT, UPDATE, DELETE"),
    "memory_items_fts": "SELECT",
    "installed_objects": "SELECT",
    "alembic_version": "SELECT, UPDATE",
}
"""The privileges of the server's role on each table; it has none on any other."""


@contextmanager
def migration_lock(url: str) -> Iterator[None]:
    """Let only one process migrate at a time, on any machine; Unavailable after two minutes."""
    with connect(url) as connection:
        try:
            connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'"))
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        except DBAPIError as cause:
            raise Unavailable("Another process is migrating the database.") from cause
        yield


def current(url: str) -> str | None:
    """Return the revision of a database, None when it is empty."""
    with connect(url) as connection:
        if connection.scalar(text("SELECT to_regclass('alembic_version')")) is None:
            return None
        revision: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
        return revision


@contextmanager
def migration_transaction(url: str) -> Iterator[Connection]:
    """Yield a connection in a transaction that sees every team, and is committed at the end."""
    with connect(url) as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text(f"SET LOCAL lock_timeout = '{_TABLE_LOCK_TIMEOUT}'"))
        yield connection
        objects.record(connection)
        connection.commit()


@contextmanager
def connect(url: str) -> Iterator[Connection]:
    """Yield a new connection, in a transaction that sees every team."""
    address, options = parse_url(url)
    engine = create_engine(address, poolclass=NullPool, connect_args=options)
    with engine.connect() as connection:
        connection.execute(text("SELECT set_config('cmem.team_id', :every, true)"), {"every": EVERY_TEAM})
        yield connection


def grant(url: str, server_url: str) -> str | None:
    """Grant the role of `server_url` access to the tables; return its name, or None when it is the owner."""
    role = role_to_grant(url, server_url)
    if role is not None:
        grant_to(url, role)
    return role


def grant_to(url: str, role: str) -> None:
    """Grant a role access to the tables, and nothing more.

    Run it after each migration, because nothing is granted on new tables yet. Running it twice changes nothing.
    """
    with connect(url) as connection:
        grant_within(connection, role)
        connection.commit()


def role_to_grant(url: str, server_url: str) -> str | None:
    """Return the server's role, or None when it is the owner."""
    role = make_url(server_url).username
    return None if role == make_url(url).username else role


def grant_within(connection: Connection, role: str | None) -> None:
    """Grant a role access to the existing tables, in the transaction of a connection."""
    if role is None:
        return
    quoted = connection.dialect.identifier_preparer.quote_identifier(role)
    schema = connection.scalar(text("SELECT quote_ident(current_schema())"))
    existing = _PRIVILEGES.keys() & inspect(connection).get_table_names()
    for statement in (
        f"GRANT USAGE ON SCHEMA {schema} TO {quoted}",
        *(f"GRANT {_PRIVILEGES[table]} ON {table} TO {quoted}" for table in sorted(existing)),
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {quoted}",
    ):
        connection.exec_driver_sql(statement)
