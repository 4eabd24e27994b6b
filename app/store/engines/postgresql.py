"""PostgreSQL: every transaction says first for whom it acts, and how long it may take.

That is set within the transaction, in the round trip that begins it. So a pooler that gives each transaction another
connection (PgBouncer in transaction mode) does no harm, and nothing of one request is left for the next.
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

from app.errors import ConnectionLost, NothingDone, Unavailable
from app.store.engines import TURN_TIMEOUT_SECONDS, is_equal_row, pipelining, unavailable
from app.store.engines.pipelining import Statement
from app.store.engines.postgres_url import connecting
from app.store.engines.rls_context import acting_for

APPLICATION_NAME: Final = "cmem-server"
"""By this name, others see who is connected."""
STATEMENT_TIMEOUT_MS: Final = 30_000
IDLE_TIMEOUT_MS: Final = 60_000
_CONNECT: Final = {
    "application_name": APPLICATION_NAME,
    # a peer that is gone without a word is noticed before the one who asks has given up
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": STATEMENT_TIMEOUT_MS,
}

_LOCKS_HELD: Final = 4
"""Connections that only hold a lock; made when they are needed."""

_CANNOT_ANSWER: Final = ("53", "55", "57", "58", "25006", "XX001", "XX002")
"""Beginnings of SQLSTATEs that tell of the server or of others, and not of a mistake in a statement."""
_LOST: Final = ("08", "57P", "25P03")
"""Those with which the server, or a pooler before it, ends a connection."""
_OVERTAKEN: Final = ("40001", "40P01")
"""Serialization failure, deadlock: whoever gets it has done nothing, and may do it again."""
_ALONE: Final = "pg_advisory_xact_lock"
_TOGETHER: Final = "pg_advisory_xact_lock_shared"

_LIMITS: Final = {
    "statement_timeout": STATEMENT_TIMEOUT_MS,
    "lock_timeout": int(TURN_TIMEOUT_SECONDS * 1000),
    "idle_in_transaction_session_timeout": IDLE_TIMEOUT_MS,
}
_NO_LIMITS: Final = {"idle_in_transaction_session_timeout": 0, "lock_timeout": 0}
FIRST: Final = "first"
"""Where a connection that glances keeps what its statement begins with; see app.store.prepared."""
_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITING: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""Not READ WRITE: that would overrule an operator, or a full disk, that made the database read-only."""


class PostgresqlEngines:
    """A pool for those who read and one for those who write, so that neither waits for the other's connections."""

    def __init__(self, url: str, *, readers: int, writers: int) -> None:
        """Connect lazily."""
        self._reading = _engine(url, pool_size=readers)
        self._writing = _engine(url, pool_size=writers)
        self._holding = _engine(url, pool_size=_LOCKS_HELD)

    def read(self) -> AbstractContextManager[Connection]:
        """Yield a connection that sees one snapshot of what the team may see, and cannot write."""
        return _transaction(self._reading, _SNAPSHOT)

    @contextmanager
    def glance(self) -> Iterator[Connection]:
        """Yield a connection for one prepared statement, which is sent in one text with the setting of the team.

        Both are one implicit transaction and one round trip: 57 µs for a row, against 360 with BEGIN and ROLLBACK.
        """
        with _connected(self._reading) as connection:
            connection.info[FIRST] = _acting(acting_for())
            try:
                yield connection
            finally:
                del connection.info[FIRST]

    def write(self, *, in_turn: bool) -> AbstractContextManager[Connection]:
        """Yield a connection that may write; commit on leaving, roll back on any exception.

        Whoever writes for a team has his turn there, on whichever machine: what he reads is what will be true when he
        commits, as it is with SQLite's one writer. Teams do not wait for each other, nor for the server itself.
        """
        return _transaction(self._writing, _WRITING, locks=((_ALONE, _turn()),) if in_turn else ())

    @contextmanager
    def append(self, alone_in: Sequence[str]) -> Iterator[Connection]:
        """Yield a connection that only adds rows: beside others that do, but while nobody has his turn to write.

        Who meets an equal row that is new has done nothing, and finds it the next time.
        """
        named = ((_ALONE, f"append {acting_for()} {name}") for name in sorted(alone_in))
        try:
            with _transaction(self._writing, _WRITING, locks=((_TOGETHER, _turn()), *named)) as connection:
                yield connection
        except IntegrityError as cause:
            if not is_equal_row(cause.orig):
                raise
            raise NothingDone("Somebody else adds the same at the moment.") from cause

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Exclude nobody: what needs this on SQLite has other means here."""
        yield

    @contextmanager
    def alone(self, name: str, *, wait: bool) -> Iterator[bool]:
        """Be the only one inside the block of this name, on whichever machine: held by an idle transaction."""
        verb = _ALONE if wait else "pg_try_advisory_xact_lock"
        lock = f"SELECT {verb}(hashtextextended({sql.quote(f'alone {name}')}, 0))"
        with _transaction(self._holding, _WRITING, limits_ms=_NO_LIMITS) as connection:
            yield connection.exec_driver_sql(lock).scalar() is not False

    def close(self) -> None:
        """Close every connection."""
        self._reading.dispose()
        self._writing.dispose()
        self._holding.dispose()


def _engine(url: str, *, pool_size: int) -> Engine:
    """Return an engine that leaves BEGIN to us; COMMIT and ROLLBACK follow what was begun."""
    address, options = connecting(url)
    engine = create_engine(
        address,
        isolation_level="AUTOCOMMIT",
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=TURN_TIMEOUT_SECONDS,
        connect_args={**_CONNECT, **options},
    )
    event.listen(engine, "checkout", _require_alive)
    event.listen(engine, "before_cursor_execute", _send_waiting)
    return engine


def _require_alive(driver: psycopg.Connection[Any], *_: object) -> None:
    """Have all connections made anew when the server has ended this one, while nobody used it.

    A server that ends a connection says so, and nobody else speaks unasked: to look whether something came in costs
    3 µs, where SQLAlchemy's pre-ping is a round trip each time: 60 µs, when to read a row takes 240.
    """
    if driver.closed or (_has_spoken(driver.fileno()) and not _answers(driver)):
        raise InvalidatePoolError


def _send_waiting(connection: Connection, *_: object) -> None:
    """Let what waits come before a statement of SQLAlchemy's own."""
    pipelining.send_waiting(connection)


def _has_spoken(socket: int) -> bool:
    looking = poll()
    looking.register(socket, POLLIN)
    return bool(looking.poll(0))


def _answers(driver: psycopg.Connection[Any]) -> bool:
    try:
        driver.execute("SELECT 1", prepare=False)
    except psycopg.Error:
        return False
    return True


@contextmanager
def _connected(engine: Engine) -> Iterator[Connection]:
    """Yield a connection; a failure to make one is an outage, a later one a connection that was lost."""
    with _failures_named(lost=Unavailable):
        connection = engine.connect()
    with _failures_named(lost=ConnectionLost), connection:
        yield connection


@contextmanager
def _transaction(
    engine: Engine, begin: str, *, locks: Sequence[tuple[str, str]] = (), limits_ms: Mapping[str, int] = _LIMITS
) -> Iterator[Connection]:
    """Yield a connection in a transaction, committed on leaving and rolled back on any exception.

    Failures say what has become of it: until COMMIT is sent nothing was done, afterwards it is not known.
    """
    with _connected(engine) as connection:
        pipelining.begin(connection, Statement(begin), _settings(tuple(limits_ms.items()), acting_for(), locks))
        try:
            with connection.begin():
                with _given_up_when_lost(connection), _failures_named(lost=NothingDone):
                    yield connection
                pipelining.commit(connection)
        finally:
            pipelining.end(connection)


@contextmanager
def _given_up_when_lost(connection: Connection) -> Iterator[None]:
    """Leave nothing to be rolled back on a connection that is gone: that would be one failure more."""
    try:
        yield
    except NothingDone:
        if not connection.invalidated and connection.connection.driver_connection.closed:  # type: ignore[union-attr]
            connection.invalidate()
        raise


def _settings(limits_ms: tuple[tuple[str, int], ...], team_id: str, locks: Sequence[tuple[str, str]]) -> Statement:
    """Return what says for whom a transaction acts, which limits it has, and what it waits for."""
    sql = _settings_sql(limits_ms, tuple(function for function, _ in locks))
    return Statement(sql, (team_id, *(name for _, name in locks)))


@lru_cache(maxsize=64)
def _settings_sql(limits_ms: tuple[tuple[str, int], ...], functions: tuple[str, ...]) -> str:
    limits = (f"set_config('{name}', '{limit}', true)" for name, limit in limits_ms)
    waiting = (f"{function}(hashtextextended(%s, 0))" for function in functions)
    return "SELECT " + ", ".join(["set_config('cmem.team_id', %s, true)", *limits, *waiting])


def _turn() -> str:
    return f"write {acting_for()}"


@lru_cache(maxsize=4_096)
def _acting(team_id: str) -> str:
    return f"SELECT set_config('cmem.team_id', {sql.quote(team_id)}, true)"


@contextmanager
def _failures_named(*, lost: type[Unavailable]) -> Iterator[None]:
    """Turn the server's "I cannot" into Unavailable; a mistake in a statement stays the bug it is."""
    try:
        yield
    except NoConnection as cause:
        raise unavailable(cause) from cause
    except (DBAPIError, psycopg.Error) as cause:
        reason = getattr(cause, "orig", cause)
        if (meaning := _meaning(reason, lost)) is None:
            raise
        raise unavailable(reason, meaning) from cause


def _meaning(failure: object, lost: type[Unavailable]) -> type[Unavailable] | None:
    """Return what a failure of the driver is to its caller; None when it is a bug."""
    state = getattr(failure, "sqlstate", None)
    if state is None:
        return lost if isinstance(failure, psycopg.OperationalError) else None
    if state.startswith(_LOST):
        return lost
    if state in _OVERTAKEN:
        return NothingDone
    return Unavailable if state.startswith(_CANNOT_ANSWER) else None
