"""The care of a PostgreSQL database: what was installed is noted when it is, and compared with what stands.

The server's own role may look, and index memories anew; to put objects back takes the role that owns the tables.
"""

from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from app.store.database import Database
from app.store.engines.postgres_url import connecting
from app.store.maintenance import REBUILD, GoOn
from app.store.models import metadata
from app.store.schema.objects import differing, put_back

_SHOWN: Final = 20
_SLICE_ROWS: Final = 500
_FULL_TEXT: Final = "memory_items_fts"

_DIFFERENCE: Final = f"""
    SELECT EXISTS (SELECT 1
      FROM (SELECT m.seq, p.part, p.own, p.beside FROM memory_items AS m, cmem_parts(m) AS p WHERE {{where}}) AS wanted
      FULL JOIN (SELECT m.seq, m.part, m.own, m.beside FROM {_FULL_TEXT} AS m WHERE {{where}}) AS standing
        USING (seq, part)
      WHERE wanted.own IS DISTINCT FROM standing.own OR wanted.beside IS DISTINCT FROM standing.beside)"""
_NEXT: Final = (
    "SELECT max(seq), count(*) FROM (SELECT seq FROM memory_items WHERE seq > :seq ORDER BY seq LIMIT :rows) AS n"
)


def faults(database: Database) -> list[str]:
    """Return every fault, each with what mends it: pages, foreign keys, triggers and functions, full text."""
    with database.read() as connection:
        pages = damaged_pages(connection, limit=_SHOWN)
        lost = orphans(connection)[:_SHOWN]
        altered = differing_objects(connection)
    found = [f"damaged page: {page}; restore the newest backup" for page in pages]
    found += [f"{table} {row}" for table, row in lost]
    found += [f"{name} is not what the migrations installed: {REBUILD}" for name in altered]
    if not altered and not is_full_text_whole(database):
        found.append(f"full text differs from the memories: {REBUILD}")
    return found


def damaged_pages(connection: Connection, *, limit: int) -> list[str]:
    """Return what the checksums told, where the cluster has them: the server counts every page it could not read."""
    counted = text("SELECT checksum_failures FROM pg_stat_database WHERE datname = current_database()")
    failures = connection.scalar(counted) or 0
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
    """Return the names of functions, triggers, policies and full-text indexes that are absent, altered, or not ours."""
    return sorted(differing(connection))


def is_full_text_whole(database: Database) -> bool:
    """Compare the index with every memory, in one snapshot; nobody waits meanwhile."""
    with database.read() as connection:
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        return is_full_text_of(connection)


def is_full_text_of(connection: Connection) -> bool:
    """Compare the index with every memory that a transaction sees."""
    return not _differs(connection, "true", {})


def is_full_text_in_step(connection: Connection) -> bool:
    """Say cheaply whether full text looks right: what was installed is there, and as many rows indexed as kept."""
    if differing_objects(connection):
        return False
    count = f"SELECT (SELECT count(*) FROM {_FULL_TEXT} WHERE part = 0), (SELECT count(*) FROM memory_items)"
    indexed, kept = connection.execute(text(count)).one()
    return bool(indexed == kept)


def differs_behind(connection: Connection, seq: int) -> tuple[bool, int]:
    """Compare the next memory with what the index holds of it; return whether it differs, and its `seq`."""
    found: int | None = connection.scalar(text("SELECT min(seq) FROM memory_items WHERE seq > :seq"), {"seq": seq})
    if found is None:
        return False, seq
    return _differs(connection, "m.seq = :seq", {"seq": found}), found


def _differs(connection: Connection, where: str, values: dict[str, int]) -> bool:
    asked = _DIFFERENCE.format(where=where)
    return bool(connection.scalar(text(asked), values))


def rebuild(database: Database, progress: Callable[[int], None] = lambda _: None) -> int:
    """Index every memory anew, slice by slice, while others go on; mend functions, triggers and policies first.

    Interrupted, it begins again the next time; run twice, it changes nothing.
    """
    with database.alone("rebuild"):
        with database.write() as connection:
            put_back(connection)
        indexed = _fill(database, progress)
        with database.write() as connection:
            # what was remembered of the index before the rebuild may be of a damaged one
            connection.execute(text("UPDATE project_statistics SET changes = changes + 1"))
    return indexed


def _fill(database: Database, progress: Callable[[int], None]) -> int:
    indexed = seq = 0
    while True:
        with database.write() as connection:
            last, count = connection.execute(text(_NEXT), {"seq": seq, "rows": _SLICE_ROWS}).one()
            connection.execute(text("SELECT cmem_index_anew(:first, :last)"), {"first": seq, "last": last})
        if not count:
            return indexed
        indexed, seq = indexed + count, last
        progress(indexed)


def merge_full_text(database: Database, go_on: GoOn) -> None:
    """Remove what deleted rows left, where the role owns the tables; else the server's autovacuum does it."""
    go_on()
    _as_owner(database, f"VACUUM (ANALYZE) {', '.join([*sorted(metadata.tables), _FULL_TEXT])}")


def give_pages_back(database: Database, go_on: GoOn) -> int:
    """Give nothing back: VACUUM returns free pages at the end of a table, and others are used again."""
    del database
    go_on()
    return 0


def refresh_statistics(database: Database) -> None:
    """Leave it to VACUUM (ANALYZE), which has run, and to autovacuum."""
    del database


def fold_log_in(database: Database) -> bool:
    """Leave the log to the server, which recycles it by itself."""
    del database
    return True


def free_share(connection: Connection) -> tuple[int, int]:
    """Return how many rows are dead, and how many there are: what VACUUM would give free."""
    counted = text(
        "SELECT coalesce(sum(n_dead_tup), 0), coalesce(sum(n_dead_tup + n_live_tup), 0) FROM pg_stat_user_tables"
    )
    dead, rows = connection.execute(counted).one()
    return int(dead), int(rows)


def sizes(database: Database) -> dict[str, int]:
    """Return the size of the database on its server's disk."""
    with database.read() as connection:
        return {"database": int(connection.scalar(text("SELECT pg_database_size(current_database())")) or 0)}


def has_checksums(connection: Connection) -> bool:
    """Say whether the server would notice a page that its disk gave back otherwise than it was written."""
    return bool(connection.scalar(text("SHOW data_checksums")) == "on")


def connections(connection: Connection) -> tuple[int, int]:
    """Return how many clients are connected to the server, and how many may be.

    Of the clients of other roles, their database and their role are all that may be seen.
    """
    used, allowed = connection.execute(
        text(
            "SELECT (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL AND usesysid IS NOT NULL),"
            " current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
        )
    ).one()
    return int(used), int(allowed)


def powers(connection: Connection) -> tuple[str, list[str]]:
    """Return the role of a connection, and what it can do that gets it past the walls between teams."""
    asked = text(
        "SELECT rolname, rolsuper, rolbypassrls, EXISTS (SELECT 1 FROM pg_tables"
        " WHERE schemaname = current_schema() AND pg_has_role(tableowner, 'USAGE'))"
        " FROM pg_roles WHERE rolname = current_user"
    )
    role, *has = connection.execute(asked).one()
    named = zip(("is a superuser", "bypasses row-level security", "owns tables"), has, strict=True)
    return role, [power for power, is_held in named if is_held]


def _as_owner(database: Database, statement: str) -> None:
    """Run what cannot be inside a transaction; a role without the right leaves it to the server's autovacuum."""
    address, options = connecting(database.url)
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
