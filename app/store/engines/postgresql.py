"""PostgreSQL: every transaction first sets the team it acts for, and its time limits.

Both are set inside the transaction, in the round trip that begins it. So a pooler that gives each transaction another
connection (PgBouncer in transaction mode) does no harm, and no setting leaks from one request to the next.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from select import POLLIN, poll
from typing import Any, Final

import psycopg
from psycopg import sql
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError, InvalidatePoolError
from sqlalchemy.exc import TimeoutError as NoConnection

from app.errors import DatabaseConnectionLost, NothingDone, Unavailable
from app.store.engines import TURN_TIMEOUT_SECONDS, is_duplicate_row, pipelining, unavailable
from app.store.engines.failures import is_postgresql_outage
from app.store.engines.pipelining import Statement
from app.store.engines.postgres_url import parse_url
from app.store.engines.rls_context import current_team_id

APPLICATION_NAME: Final = "cmem-server"
"""The name that pg_stat_activity shows."""
STATEMENT_TIMEOUT_MS: Final = 30_000
IDLE_TIMEOUT_MS: Final = 60_000
_CONNECT: Final = {
    "application_name": APPLICATION_NAME,
    # a peer that vanished is noticed before the client gives up
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": STATEMENT_TIMEOUT_MS,
}

_LOCKS_HELD: Final = 4
"""The pool of connections that only hold an advisory lock; opened when needed."""

_LOST: Final = ("08", "57P", "25P03")
"""Prefixes of the SQLSTATEs with which the server, or a pooler in front of it, ends a connection."""
_RETRYABLE: Final = ("40001", "40P01")
"""Serialization failure, deadlock: the transaction was rolled back, and may be retried."""
_EXCLUSIVE: Final = "pg_advisory_xact_lock"
_SHARED: Final = "pg_advisory_xact_lock_shared"

_LIMITS: Final = {
    "statement_timeout": STATEMENT_TIMEOUT_MS,
    "lock_timeout": int(TURN_TIMEOUT_SECONDS * 1000),
    "idle_in_transaction_session_timeout": IDLE_TIMEOUT_MS,
}
_NO_LIMITS: Final = {"idle_in_transaction_session_timeout": 0, "lock_timeout": 0}
FIRST: Final = "first"
"""The key in `Connection.info` of the SQL that read_one() sends before the statement; see app.store.prepared."""
_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITING: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""Not READ WRITE: that would override an operator, or a full disk, that made the database read-only."""


class PostgresqlEngines:
    """Separate pools for reading and writing, so that neither waits for the other's connections."""

    def __init__(self, url: str, *, readers: int, writers: int) -> None:
        """Connect lazily."""
        self._reading = _engine(url, pool_size=readers)
        self._writing = _engine(url, pool_size=writers)
        self._holding = _engine(url, pool_size=_LOCKS_HELD)

    def read(self) -> AbstractContextManager[Connection]:
        """Yield a connection that sees one snapshot of the team's rows, and cannot write."""
        return _transaction(self._reading, _SNAPSHOT)

    @contextmanager
    def read_one(self) -> Iterator[Connection]:
        """Yield a connection for one prepared statement, which is sent in the same message as the team setting.

        Both are one implicit transaction and one round trip: 57 µs for a row, against 360 with BEGIN and ROLLBACK.
        """
        with _connected(self._reading) as connection:
            connection.info[FIRST] = _set_team(current_team_id())
            try:
                yield connection
            finally:
                del connection.info[FIRST]

    def write(self, *, exclusive: bool) -> AbstractContextManager[Connection]:
        """Yield a connection that may write; commit on leaving, roll back on any exception.

        Exclusive writers of a team take turns, across all machines: what one reads is still true when it commits, as
        with SQLite's single writer. Teams do not wait for each other, nor for the server itself.
        """
        return _transaction(self._writing, _WRITING, locks=((_EXCLUSIVE, _write_lock()),) if exclusive else ())

    @contextmanager
    def insert(self, lock_names: Sequence[str]) -> Iterator[Connection]:
        """Yield a connection that only inserts rows: concurrently with other inserts, but not with exclusive writers.

        Raises NothingDone when a concurrent insert added the same row; a retry finds that row.
        """
        named_locks = ((_EXCLUSIVE, f"append {current_team_id()} {name}") for name in sorted(lock_names))
        try:
            with _transaction(self._writing, _WRITING, locks=((_SHARED, _write_lock()), *named_locks)) as connection:
                yield connection
        except IntegrityError as cause:
            if not is_duplicate_row(cause.orig):
                raise
            raise NothingDone("A concurrent request is adding the same row; try again.") from cause

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Do nothing: maintenance that needs this on SQLite works differently here."""
        yield

    @contextmanager
    def advisory_lock(self, name: str, *, wait: bool) -> Iterator[bool]:
        """Hold a named lock across all machines, in an idle transaction; yield whether it was acquired."""
        function = _EXCLUSIVE if wait else "pg_try_advisory_xact_lock"
        lock = f"SELECT {function}(hashtextextended({sql.quote(f'alone {name}')}, 0))"
        with _transaction(self._holding, _WRITING, limits_ms=_NO_LIMITS) as connection:
            yield connection.exec_driver_sql(lock).scalar() is not False

    def close(self) -> None:
        """Close every connection."""
        self._reading.dispose()
        self._writing.dispose()
        self._holding.dispose()


def _engine(url: str, *, pool_size: int) -> Engine:
    """Return an engine that leaves BEGIN to us; COMMIT and ROLLBACK work as usual."""
    address, options = parse_url(url)
    engine = create_engine(
        address,
        isolation_level="AUTOCOMMIT",
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=TURN_TIMEOUT_SECONDS,
        connect_args={**_CONNECT, **options},
    )
    event.listen(engine, "checkout", _require_alive)
    event.listen(engine, "before_cursor_execute", _flush)
    return engine


def _require_alive(driver: psycopg.Connection[Any], *_: object) -> None:
    """Replace all pooled connections when the server has ended this one while it was idle.

    A server announces that it ends a connection, and otherwise sends nothing unasked. So checking whether data arrived
    suffices, and costs 3 µs; SQLAlchemy's pre-ping takes a round trip of 60 µs, when reading a row takes 240.
    """
    if driver.closed or (_has_input(driver.fileno()) and not _answers(driver)):
        raise InvalidatePoolError


def _flush(connection: Connection, *_: object) -> None:
    """Send queued statements before one that SQLAlchemy executes itself."""
    pipelining.flush(connection)


def _has_input(socket: int) -> bool:
    poller = poll()
    poller.register(socket, POLLIN)
    return bool(poller.poll(0))


def _answers(driver: psycopg.Connection[Any]) -> bool:
    try:
        driver.execute("SELECT 1", prepare=False)
    except psycopg.Error:
        return False
    return True


@contextmanager
def _connected(engine: Engine) -> Iterator[Connection]:
    """Yield a connection. A failure to connect is Unavailable, a later one DatabaseConnectionLost."""
    with _translate_errors(lost=Unavailable):
        connection = engine.connect()
    with _translate_errors(lost=DatabaseConnectionLost), connection:
        yield connection


@contextmanager
def _transaction(
    engine: Engine, begin: str, *, locks: Sequence[tuple[str, str]] = (), limits_ms: Mapping[str, int] = _LIMITS
) -> Iterator[Connection]:
    """Yield a connection in a transaction, committed on leaving and rolled back on any exception.

    A connection lost before COMMIT is sent is NothingDone; after that the outcome is unknown: DatabaseConnectionLost.
    """
    with _connected(engine) as connection:
        pipelining.begin(connection, Statement(begin), _settings(tuple(limits_ms.items()), current_team_id(), locks))
        try:
            with connection.begin():
                with _invalidate_if_lost(connection), _translate_errors(lost=NothingDone):
                    yield connection
                pipelining.commit(connection)
        finally:
            pipelining.end(connection)


@contextmanager
def _invalidate_if_lost(connection: Connection) -> Iterator[None]:
    """Discard a lost connection, because rolling back on it would be a second failure."""
    try:
        yield
    except NothingDone:
        if not connection.invalidated and connection.connection.driver_connection.closed:  # type: ignore[union-attr]
            connection.invalidate()
        raise


def _settings(limits_ms: tuple[tuple[str, int], ...], team_id: str, locks: Sequence[tuple[str, str]]) -> Statement:
    """Return the statement that sets a transaction's team and limits, and acquires its locks."""
    sql = _settings_sql(limits_ms, tuple(function for function, _ in locks))
    return Statement(sql, (team_id, *(name for _, name in locks)))


@lru_cache(maxsize=64)
def _settings_sql(limits_ms: tuple[tuple[str, int], ...], functions: tuple[str, ...]) -> str:
    limits = (f"set_config('{name}', '{limit}', true)" for name, limit in limits_ms)
    acquired = (f"{function}(hashtextextended(%s, 0))" for function in functions)
    return "SELECT " + ", ".join(["set_config('cmem.team_id', %s, true)", *limits, *acquired])


def _write_lock() -> str:
    return f"write {current_team_id()}"


@lru_cache(maxsize=4_096)
def _set_team(team_id: str) -> str:
    return f"SELECT set_config('cmem.team_id', {sql.quote(team_id)}, true)"


@contextmanager
def _translate_errors(*, lost: type[Unavailable]) -> Iterator[None]:
    """Raise Unavailable for the server's outages; an error in a statement stays the bug that it is."""
    try:
        yield
    except NoConnection as cause:
        raise unavailable(cause) from cause
    except (DBAPIError, psycopg.Error) as cause:
        reason = getattr(cause, "orig", cause)
        if (error := _error_for(reason, lost)) is None:
            raise
        raise unavailable(reason, error) from cause


def _error_for(failure: object, lost: type[Unavailable]) -> type[Unavailable] | None:
    """Return the class of the error to raise for a driver's exception; None when it is a bug."""
    state = getattr(failure, "sqlstate", None)
    if state is None:
        return lost if isinstance(failure, psycopg.OperationalError) else None
    if state.startswith(_LOST):
        return lost
    if state in _RETRYABLE:
        return NothingDone
    return Unavailable if is_postgresql_outage(state) else None
