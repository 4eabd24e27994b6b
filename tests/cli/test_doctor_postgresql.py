"""`doctor` on PostgreSQL: it finds damage, and the command that it suggests repairs it; running that twice is safe."""

import pytest

from app.caller import Caller
from app.store.database import Database
from tests.cli.test_doctor import Command, filled, named, wrong
from tests.databases import Databases, PostgresqlDatabases
from tests.postgresql import OWNER, SERVER, Cluster

__all__ = ["filled"]


@pytest.fixture(scope="session", params=["postgresql"])
def databases(cluster: Cluster) -> Databases:
    """PostgreSQL only."""
    return PostgresqlDatabases(cluster)


def as_owner(store: Database, *statements: str) -> None:
    """Run statements as an administrator does at a prompt."""
    owned = Database(store.url.replace(SERVER, OWNER, 1))
    with owned.write() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    owned.close()


@pytest.mark.parametrize(
    ("harm", "detail"),
    [
        ("DROP TRIGGER trg_memory_items_fts_update ON memory_items", "trigger trg_memory_items_fts_update"),
        ("ALTER TABLE memory_items DISABLE TRIGGER trg_memory_items_outbox_insert", "trg_memory_items_outbox_insert"),
        ("DROP FUNCTION trg_audit_log_delete() CASCADE", "function trg_audit_log_delete, trigger trg_audit_log_delete"),
        ("ALTER TABLE memory_items DISABLE ROW LEVEL SECURITY", "row security of memory_items"),
        ("ALTER TABLE projects NO FORCE ROW LEVEL SECURITY", "row security of projects"),
        ("ALTER POLICY tenant ON projects USING (true)", "policy tenant on projects"),
        ("CREATE POLICY everybody ON api_keys USING (true)", "policy everybody on api_keys"),
        ("ALTER FUNCTION cmem_find_in_own SECURITY INVOKER", "function cmem_find_in_own"),
        ("DROP INDEX ix_memory_items_fts_own", "index ix_memory_items_fts_own"),
    ],
)
def test_objects_that_differ_from_the_installed_ones_are_found_and_repaired(
    command: Command, store: Database, filled: str, harm: str, detail: str
):
    """By the suggested rebuild, as the owner, which may run twice."""
    as_owner(store, harm)
    found = wrong(command)

    assert list(found) == ["triggers"]
    assert detail in found["triggers"]["detail"]
    for _ in range(2):
        assert command(*named(found["triggers"])).exit_code == 0
    assert wrong(command) == {}


@pytest.mark.parametrize(
    "harm",
    [
        ("DELETE FROM memory_items_fts WHERE mod(seq, 3) = 0",),
        ("UPDATE memory_items_fts SET own = 'another:1' WHERE part = 0",),
        (
            "ALTER TABLE memory_items DISABLE TRIGGER trg_memory_items_fts_update",
            "UPDATE memory_items SET text = replace(text, 'keeper', 'sleeper')",
            "ALTER TABLE memory_items ENABLE TRIGGER trg_memory_items_fts_update",
        ),
    ],
)
def test_full_text_that_differs_is_found_and_repaired(
    command: Command, store: Database, filled: str, harm: tuple[str, ...]
):
    """Compared word for word: counts would not show it."""
    as_owner(store, *harm)
    found = wrong(command)

    assert list(found) == ["full text"]
    for _ in range(2):
        assert command(*named(found["full text"])).exit_code == 0
    assert wrong(command) == {}


def test_an_empty_database_is_found_and_migrated(command: Command, store: Database, filled: str):
    """The upgrade also grants the privileges of the server's role."""
    store.close()
    command("db", "downgrade", "base")
    found = wrong(command)

    assert list(found) == ["migrations"]
    for _ in range(2):
        assert command(*named(found["migrations"])).exit_code == 0
    assert wrong(command) == {}


def test_an_unreachable_database_is_found(command: Command, filled: str, monkeypatch: pytest.MonkeyPatch):
    """With what to do, and without the checks that depend on it."""
    for name in ("CMEM_DATABASE_URL", "CMEM_DATABASE_ADMIN_URL"):
        monkeypatch.setenv(name, "postgresql+psycopg://cmem_owner:secret@127.0.0.1:1/cmem")

    found = wrong(command)

    assert list(found) == ["database"]
    assert found["database"]["detail"] == "not readable: it cannot be reached"
    assert "CMEM_DATABASE_URL" in found["database"]["remedy"]


def test_a_read_only_database_is_found(command: Command, store: Database, filled: str):
    """Many providers make a database read-only when its disk is full."""
    store.close()
    as_owner(store, f"ALTER DATABASE {store.url.split('@/')[1].split('?')[0]} SET default_transaction_read_only = on")

    assert wrong(command)["database"]["detail"] == "not writable: it is read-only"


def test_a_server_role_with_too_many_privileges_is_a_warning(
    command: Command, store: Database, filled: str, monkeypatch: pytest.MonkeyPatch
):
    """Row-level security would not hold it back."""
    for role, detail in (("postgres", "is a superuser"), (OWNER, "role cmem_owner owns tables")):
        monkeypatch.setenv("CMEM_DATABASE_URL", store.url.replace(SERVER, role, 1))
        found = wrong(command)

        assert list(found) == ["role"]
        assert (found["role"]["state"], detail in found["role"]["detail"]) == ("warning", True)
        assert named(found["role"]) == ["db", "upgrade"]


def test_a_server_role_that_lacks_a_privilege_is_found_and_repaired(command: Command, store: Database, filled: str):
    """The upgrade grants privileges also when there is nothing to migrate."""
    as_owner(store, f"REVOKE ALL ON memory_items FROM {SERVER}")
    found = wrong(command)

    assert found["role"]["detail"] == "for the server's role the database is not writable: this role lacks a privilege"
    for _ in range(2):
        assert command(*named(found["role"])).exit_code == 0
    assert wrong(command) == {}


def test_few_free_connections_are_a_warning(command: Command, filled: str, cluster: Cluster):
    """Before the last one is used."""
    with cluster.connect() as connection:
        row = connection.execute("SHOW max_connections").fetchone()
    others = [cluster.connect() for _ in range(int(row[0]) * 85 // 100)] if row else []
    try:
        found = wrong(command)
    finally:
        for other in others:
            other.close()

    assert (list(found), found["connections"]["state"]) == (["connections"], "warning")


def test_the_write_ahead_log_is_not_checked(command: Command, owner: Caller):
    """PostgreSQL maintains its own, so there is no line about it."""
    shown = command("doctor").output

    assert all(what in shown for what in ("dead rows", "connections", "role"))
    assert "log " not in shown
