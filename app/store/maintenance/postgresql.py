"""Maintains a PostgreSQL database. What the migrations installed was recorded, and is compared with what exists now.

The server's own role may check, and index memories again; only the role that owns the tables may reinstall objects.
"""

from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from app.store.database import Database
from app.store.engines.postgres_url import parse_url
from app.store.maintenance import REBUILD, StopCheck
from app.store.models import metadata
from app.store.schema.objects import differing, reinstall

_MAX_SHOWN: Final = 20
_SLICE_ROWS: Final = 500
_FULL_TEXT: Final = "memory_items_fts"

_DIFFERENCE: Final = f"""
    SELECT EXISTS (SELECT 1
      FROM (SELECT m.seq, p.part, p.own, p.beside FROM memory_items AS m, cmem_parts(m) AS p WHERE {{where}})
        AS expected
      FULL JOIN (SELECT m.seq, m.part, m.own, m.beside FROM {_FULL_TEXT} AS m WHERE {{where}}) AS existing
        USING (seq, part)
      WHERE expected.own IS DISTINCT FROM existing.own OR expected.beside IS DISTINCT FROM existing.beside)"""
_NEXT: Final = (
    "SELECT max(seq), count(*) FROM (SELECT seq FROM memory_items WHERE seq > :seq ORDER BY seq LIMIT :rows) AS n"
)


def faults(database: Database) -> list[str]:
    """Return every fault, with its remedy: pages, foreign keys, triggers and functions, full text."""
    with database.read() as connection:
        pages = damaged_pages(connection, limit=_MAX_SHOWN)
        orphaned = orphans(connection)[:_MAX_SHOWN]
        altered = differing_objects(connection)
    result = [f"damaged page: {page}; restore the newest backup" for page in pages]
    result += [f"{table} {row}" for table, row in orphaned]
    result += [f"{name} is not what the migrations installed: {REBUILD}" for name in altered]
    if not altered and not is_full_text_intact(database):
        result.append(f"full text differs from the memories: {REBUILD}")
    return result


def damaged_pages(connection: Connection, *, limit: int) -> list[str]:
    """Return what the server counted: pages it has read whose checksum was wrong, where the cluster has checksums."""
    query = text("SELECT checksum_failures FROM pg_stat_database WHERE datname = current_database()")
    failures = connection.scalar(query) or 0
    return [f"{failures} pages failed their checksums"][:limit] if failures else []


def orphans(connection: Connection) -> list[tuple[str, str]]:
    """Return the foreign keys that are not enforced; where they are, there cannot be a row without its parent."""
    unchecked = text(
        "SELECT conrelid::regclass::text, conname FROM pg_constraint"
        " WHERE contype = 'f' AND NOT convalidated AND connamespace = current_schema()::regnamespace"
    )
    return [
        (table, f"may have rows without their parent: {name} was not validated")
        for table, name in connection.execute(unchecked)
    ]


def differing_objects(connection: Connection) -> list[str]:
    """Return the names of functions, triggers, policies and full-text indexes that are missing, altered or foreign."""
    return sorted(differing(connection))


def is_full_text_intact(database: Database) -> bool:
    """Compare the index with every memory in one snapshot, which blocks nobody."""
    with database.read() as connection:
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        return is_full_text_intact_in(connection)


def is_full_text_intact_in(connection: Connection) -> bool:
    """Compare the index with every memory that a transaction sees."""
    return not _differs(connection, "true", {})


def is_full_text_plausible(connection: Connection) -> bool:
    """Check full text cheaply: its objects are as installed, and as many memories are indexed as exist."""
    if differing_objects(connection):
        return False
    count = f"SELECT (SELECT count(*) FROM {_FULL_TEXT} WHERE part = 0), (SELECT count(*) FROM memory_items)"
    indexed, existing = connection.execute(text(count)).one()
    return bool(indexed == existing)


def next_memory_differs(connection: Connection, seq: int) -> tuple[bool, int]:
    """Compare the first memory after `seq` with the index; return whether it differs, and its own `seq`."""
    following: int | None = connection.scalar(text("SELECT min(seq) FROM memory_items WHERE seq > :seq"), {"seq": seq})
    if following is None:
        return False, seq
    return _differs(connection, "m.seq = :seq", {"seq": following}), following


def _differs(connection: Connection, where: str, values: dict[str, int]) -> bool:
    return bool(connection.scalar(text(_DIFFERENCE.format(where=where)), values))


def rebuild(database: Database, progress: Callable[[int], None] = lambda _: None) -> int:
    """Reinstall what differs, then index every memory again, slice by slice, while others go on.

    If interrupted, it starts over the next time; running it twice changes nothing.
    """
    with database.advisory_lock("rebuild"):
        with database.write() as connection:
            reinstall(connection)
        indexed = _index_all(database, progress)
        with database.write() as connection:
            # postings that were cached before the rebuild may come from a damaged index
            connection.execute(text("UPDATE project_statistics SET changes = changes + 1"))
    return indexed


def _index_all(database: Database, progress: Callable[[int], None]) -> int:
    indexed = seq = 0
    while True:
        with database.write() as connection:
            last, count = connection.execute(text(_NEXT), {"seq": seq, "rows": _SLICE_ROWS}).one()
            connection.execute(text("SELECT cmem_index_anew(:first, :last)"), {"first": seq, "last": last})
        if not count:
            return indexed
        indexed, seq = indexed + count, last
        progress(indexed)


def merge_full_text(database: Database, check_stop: StopCheck) -> None:
    """Vacuum the tables if this role owns them; otherwise the server's autovacuum does it."""
    check_stop()
    _run_as_owner(database, f"VACUUM (ANALYZE) {', '.join([*sorted(metadata.tables), _FULL_TEXT])}")


def release_free_pages(database: Database, check_stop: StopCheck) -> int:
    """Release nothing: VACUUM returns free pages at the end of a table, and the others are reused."""
    del database
    check_stop()
    return 0


def refresh_statistics(database: Database) -> None:
    """Do nothing: VACUUM (ANALYZE), which has run, and autovacuum do it."""
    del database


def checkpoint_log(database: Database) -> bool:
    """Do nothing: the server recycles its log automatically."""
    del database
    return True


def free_and_total(connection: Connection) -> tuple[int, int]:
    """Return the number of dead rows, whose space VACUUM would free, and of all rows."""
    query = text(
        "SELECT coalesce(sum(n_dead_tup), 0), coalesce(sum(n_dead_tup + n_live_tup), 0) FROM pg_stat_user_tables"
    )
    dead, rows = connection.execute(query).one()
    return int(dead), int(rows)


def sizes(database: Database) -> dict[str, int]:
    """Return the size of the database on its server's disk."""
    with database.read() as connection:
        return {"database": int(connection.scalar(text("SELECT pg_database_size(current_database())")) or 0)}


def _run_as_owner(database: Database, statement: str) -> None:
    """Run a statement that must be outside a transaction, unless this role does not own the tables."""
    address, options = parse_url(database.url)
    engine = create_engine(address, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=options)
    with engine.connect() as connection:
        if _owns_tables(connection):
            connection.exec_driver_sql(statement)


def _owns_tables(connection: Connection) -> bool:
    owner = text("SELECT pg_has_role(tableowner, 'USAGE') FROM pg_tables WHERE tablename = 'memory_items'")
    try:
        return bool(connection.scalar(owner))
    except DBAPIError:
        return False
