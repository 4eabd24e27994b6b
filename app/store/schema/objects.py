"""What migrations install on PostgreSQL beside tables: noted when they have run, compared with what stands later.

Functions, triggers, policies and full-text indexes, each by name with the statement that makes it.
"""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, text

from app.errors import Conflict
from app.store.engines.pipelining import driver

_NOTED: Final = "installed_objects"
_ROW_SECURITY: Final = "row security of"

_STANDING: Final = r"""
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


def note(connection: Connection) -> None:
    """Remember what stands now as what should: after a migration, in its transaction."""
    connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {_NOTED} (name TEXT PRIMARY KEY, definition TEXT NOT NULL)")
    connection.exec_driver_sql(f"DELETE FROM {_NOTED}")  # noqa: S608 - a constant name
    for name, definition in _standing(connection).items():
        connection.execute(
            text(f"INSERT INTO {_NOTED} VALUES (:name, :definition)"),  # noqa: S608 - a constant name
            {"name": name, "definition": definition},
        )


def differing(connection: Connection) -> dict[str, str | None]:
    """Return what is absent, altered or not ours, by name with the statement that mends it; None when not ours."""
    standing, wanted = _standing(connection), _wanted(connection)
    return {
        name: wanted.get(name)
        for name in sorted(standing.keys() | wanted.keys())
        if standing.get(name) != wanted.get(name) and not _is_of_others(name, wanted)
    }


def _is_of_others(name: str, wanted: Mapping[str, str]) -> bool:
    """Say whether it belongs to a table that is none of ours: what others keep in our schema is their affair."""
    kind, _, table = name.replace(f"{_ROW_SECURITY} ", f"{_ROW_SECURITY} on ").rpartition(" on ")
    return kind != "" and f"{_ROW_SECURITY} {table}" not in wanted


def put_back(connection: Connection) -> None:
    """Make what differs as it was installed; Conflict when this role may not: it takes the one that owns the tables.

    Functions come first, since triggers need them.
    """
    wrong = differing(connection)
    if not wrong:
        return
    if not connection.scalar(text("SELECT pg_has_role(tableowner, 'USAGE') FROM pg_tables WHERE tablename = 'teams'")):
        raise Conflict(
            f"{', '.join(wrong)}: only the role that owns the tables can mend that (CMEM_DATABASE_ADMIN_URL)."
        )
    for name, statement in sorted(wrong.items(), key=lambda each: not each[0].startswith("function")):
        driver(connection).execute(statement or _dropping(name))


def _dropping(name: str) -> str:
    kind, rest = name.split(" ", 1)
    return f"DROP {kind} {rest}" + (" CASCADE" if kind == "function" else "")


def _standing(connection: Connection) -> dict[str, str]:
    return dict(driver(connection).execute(_STANDING).fetchall())


def _wanted(connection: Connection) -> dict[str, str]:
    rows = connection.exec_driver_sql(f"SELECT name, definition FROM {_NOTED}")  # noqa: S608 - a constant name
    return {row.name: row.definition for row in rows}
