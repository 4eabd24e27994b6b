"""What migrations install on PostgreSQL in addition to tables: recorded after they have run, and compared later.

Functions, triggers, policies and full-text indexes, each by name with the statement that creates it.
"""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, text

from app.errors import Conflict
from app.store.engines.pipelining import driver

_RECORDED: Final = "installed_objects"
_ROW_SECURITY: Final = "row security of"

_EXISTING: Final = r"""
  SELECT 'function ' || p.proname AS name, pg_get_functiondef(p.oid) AS definition
  FROM pg_proc AS p
  WHERE p.pronamespace = current_schema()::regnamespace AND p.proname ~ '^(cmem|trg)_'
UNION ALL
  SELECT 'trigger ' || t.tgname || ' on ' || c.relname,
    format('DROP TRIGGER IF EXISTS %I ON %I; %s', t.tgname, c.relname, pg_get_triggerdef(t.oid))
    || CASE t.tgenabled WHEN 'O' THEN '' ELSE format('; -- %s', t.tgenabled) END
  FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
  WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace
UNION ALL
  SELECT 'policy ' || policyname || ' on ' || tablename,
    format('DROP POLICY IF EXISTS %I ON %I; CREATE POLICY %I ON %I AS %s FOR %s TO %s USING (%s)',
      policyname, tablename, policyname, tablename, permissive, cmd, array_to_string(roles, ', '), qual)
    || CASE WHEN with_check IS NULL THEN '' ELSE format(' WITH CHECK (%s)', with_check) END
  FROM pg_policies WHERE schemaname = current_schema()
UNION ALL
  SELECT 'row security of ' || relname,
    format('ALTER TABLE %I %s ROW LEVEL SECURITY, %s ROW LEVEL SECURITY', relname,
      CASE WHEN relrowsecurity THEN 'ENABLE' ELSE 'DISABLE' END,
      CASE WHEN relforcerowsecurity THEN 'FORCE' ELSE 'NO FORCE' END)
  FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname <> 'installed_objects'
UNION ALL
  SELECT 'index ' || indexname, replace(indexdef, 'CREATE INDEX', 'CREATE INDEX IF NOT EXISTS')
  FROM pg_indexes WHERE schemaname = current_schema() AND indexname LIKE 'ix\_memory\_items\_fts\_%'
"""


def record(connection: Connection) -> None:
    """Record what exists now as what should exist: after a migration, in its transaction."""
    columns = "name TEXT PRIMARY KEY, definition TEXT NOT NULL"
    connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {_RECORDED} ({columns})")
    connection.exec_driver_sql(f"DELETE FROM {_RECORDED}")  # noqa: S608 - a constant name
    for name, definition in _existing(connection).items():
        connection.execute(
            text(f"INSERT INTO {_RECORDED} VALUES (:name, :definition)"),  # noqa: S608 - a constant name
            {"name": name, "definition": definition},
        )


def differing(connection: Connection) -> dict[str, str | None]:
    """Return what is missing, altered or not ours: by name, the statement that restores it, or None when not ours."""
    existing, expected = _existing(connection), _expected(connection)
    return {
        name: expected.get(name)
        for name in sorted(existing.keys() | expected.keys())
        if existing.get(name) != expected.get(name) and not _is_on_foreign_table(name, expected)
    }


def _is_on_foreign_table(name: str, expected: Mapping[str, str]) -> bool:
    """Say whether an object is on a table that is not ours: other applications may use our schema."""
    kind, _, table = name.replace(f"{_ROW_SECURITY} ", f"{_ROW_SECURITY} on ").rpartition(" on ")
    return kind != "" and f"{_ROW_SECURITY} {table}" not in expected


def reinstall(connection: Connection) -> None:
    """Restore what differs to what was installed; Conflict when this role does not own the tables.

    Functions come first, because triggers need them.
    """
    wrong = differing(connection)
    if not wrong:
        return
    if not connection.scalar(text("SELECT pg_has_role(tableowner, 'USAGE') FROM pg_tables WHERE tablename = 'teams'")):
        raise Conflict(
            f"{', '.join(wrong)}: only the role that owns the tables can repair this (set CMEM_DATABASE_ADMIN_URL)."
        )
    for name, statement in sorted(wrong.items(), key=lambda each: not each[0].startswith("function")):
        driver(connection).execute(statement or _drop_statement(name))


def _drop_statement(name: str) -> str:
    kind, rest = name.split(" ", 1)
    return f"DROP {kind} {rest}" + (" CASCADE" if kind == "function" else "")


def _existing(connection: Connection) -> dict[str, str]:
    return dict(driver(connection).execute(_EXISTING).fetchall())


def _expected(connection: Connection) -> dict[str, str]:
    rows = connection.exec_driver_sql(f"SELECT name, definition FROM {_RECORDED}")  # noqa: S608 - a constant name
    return {row.name: row.definition for row in rows}
