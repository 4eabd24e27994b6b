"""Driver errors are classified by one table per dialect: is it an outage, and what is the cause in words?"""

import sqlite3

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from app.errors import Unavailable
from app.store.engines import failures


class _SqliteError(sqlite3.OperationalError):
    def __init__(self, code: int) -> None:
        super().__init__("from SQLite")
        self.sqlite_errorcode = code


def of_sqlstate(sqlstate: str) -> psycopg.Error:
    return psycopg.errors.lookup(sqlstate)("from PostgreSQL")


@pytest.mark.parametrize(
    ("code", "cause", "is_outage"),
    [
        (sqlite3.SQLITE_FULL, "the disk is full", True),
        (sqlite3.SQLITE_READONLY, "it is read-only", True),
        (sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error", True),
        (sqlite3.SQLITE_NOTADB, "it is corrupt", True),
        (sqlite3.SQLITE_LOCKED, None, True),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, None, False),
    ],
)
def test_sqlite_errors_are_classified_by_primary_result_code(code: int, cause: str | None, is_outage: bool):
    """An extended code counts as its primary one."""
    error = _SqliteError(code)

    assert (failures.describe(error, "sqlite"), failures.is_sqlite_outage(error)) == (cause, is_outage)


@pytest.mark.parametrize(
    ("sqlstate", "cause", "is_outage"),
    [
        ("53100", "the disk is full", True),
        ("53200", "it is out of resources", True),
        ("55P03", "another process holds the lock", True),
        ("55006", None, True),
        ("57014", "the statement timed out", True),
        ("57P01", "it is starting or shutting down", True),
        ("42501", "this role lacks a privilege", False),
        ("23505", None, False),
    ],
)
def test_postgresql_errors_are_classified_by_sqlstate(sqlstate: str, cause: str | None, is_outage: bool):
    """A single SQLSTATE takes precedence over its class."""
    described = failures.describe(of_sqlstate(sqlstate), "postgresql")

    assert (described, failures.is_postgresql_outage(sqlstate)) == (cause, is_outage)


def test_lost_connection_without_a_sqlstate_is_unreachable():
    """A server that never answered has sent no SQLSTATE."""
    assert failures.describe(psycopg.OperationalError("refused"), "postgresql") == "it cannot be reached"
    assert failures.describe(psycopg.ProgrammingError("a bug"), "postgresql") is None


def test_cause_is_found_below_the_errors_that_wrap_it():
    """The app's own error wraps SQLAlchemy's, which wraps the driver's."""
    wrapped = Unavailable("The database is unavailable at the moment.")
    wrapped.__cause__ = DBAPIError("SELECT 1", None, _SqliteError(sqlite3.SQLITE_FULL))

    assert failures.describe(wrapped, "sqlite") == "the disk is full"
