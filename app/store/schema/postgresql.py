"""PostgreSQL: an advisory lock among processes, one transaction, and afterwards the rights of the server's role.

The role that owns the tables migrates; the server connects as another, which owns nothing: see `grant`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, create_engine, inspect, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from app.errors import Unavailable
from app.store.engines.postgres_url import connecting
from app.store.engines.rls_context import EVERY_TEAM
from app.store.models import metadata
from app.store.schema import objects

SCRIPTS: Final = "postgresql"
_LOCK: Final = "hashtextextended('cmem-server migration', 0)"
_LOCK_TIMEOUT: Final = "120s"
_WAIT_FOR_OTHERS: Final = "30s"
"""A migration that cannot have a table in this time gives up, instead of letting everybody queue behind it."""

_RIGHTS: Final = {
    **dict.fromkeys(metadata.tables, "SELECT, INSERT, UPDATE, DELETE"),
    "memory_items_fts": "SELECT",
    "installed_objects": "SELECT",
    "alembic_version": "SELECT, UPDATE",
}
"""What the server's role may do with each table, and with no other."""


@contextmanager
def alone(url: str) -> Iterator[None]:
    """Let one process migrate at a time, on whichever machine."""
    with connected(url) as connection:
        try:
            connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'"))
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        except DBAPIError as cause:
            raise Unavailable("Another process is migrating the database.") from cause
        yield


def current(url: str) -> str | None:
    """Return the revision of a database, None when it is empty."""
    with connected(url) as connection:
        if connection.scalar(text("SELECT to_regclass('alembic_version')")) is None:
            return None
        found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
        return found


@contextmanager
def changing(url: str) -> Iterator[Connection]:
    """Yield a connection in one transaction that sees every team, committed in the end."""
    with connected(url) as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text(f"SET LOCAL lock_timeout = '{_WAIT_FOR_OTHERS}'"))
        yield connection
        objects.note(connection)
        connection.commit()


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """Yield a connection of its own, in a transaction that sees every team."""
    address, options = connecting(url)
    engine = create_engine(address, poolclass=NullPool, connect_args=options)
    with engine.connect() as connection:
        connection.execute(text("SELECT set_config('cmem.team_id', :every, true)"), {"every": EVERY_TEAM})
        yield connection


def grant(url: str, server_url: str) -> str | None:
    """Let the role of `server_url` use the tables; return its name, None when it is the owner's own."""
    role = role_to_grant(url, server_url)
    if role is not None:
        grant_to(url, role)
    return role


def grant_to(url: str, role: str) -> None:
    """Let a role use the tables, and nothing more.

    Run after each migration: what was made anew is not granted yet. Run again, it changes nothing.
    """
    with connected(url) as connection:
        grant_within(connection, role)
        connection.commit()


def role_to_grant(url: str, server_url: str) -> str | None:
    """Return the server's role, None when it is the owner's own."""
    role = make_url(server_url).username
    return None if role == make_url(url).username else role


def grant_within(connection: Connection, role: str | None) -> None:
    """Let a role use the tables that stand, in the transaction of a connection."""
    if role is None:
        return
    quoted = connection.dialect.identifier_preparer.quote_identifier(role)
    schema = connection.scalar(text("SELECT quote_ident(current_schema())"))
    standing = _RIGHTS.keys() & inspect(connection).get_table_names()
    for statement in (
        f"GRANT USAGE ON SCHEMA {schema} TO {quoted}",
        *(f"GRANT {_RIGHTS[table]} ON {table} TO {quoted}" for table in sorted(standing)),
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {quoted}",
    ):
        connection.exec_driver_sql(statement)
