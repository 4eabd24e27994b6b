"""`db`: migrations and the check, as scripts use them."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy.exc import DBAPIError

from app.store.database import Database
from app.store.schema import migrations
from tests.databases import Databases
from tests.serving import Home

Command = Callable[..., Result]


def test_upgrade_and_downgrade_print_the_new_revision(command: Command):
    """Forward and back, step by step."""
    assert command("db", "downgrade", "0001").output == "at revision 0001\n"
    assert command("db", "upgrade", "0001").output.splitlines()[0] == "at revision 0001"
    assert command("db", "upgrade", "0002").output.splitlines()[0] == "at revision 0002"
    assert command("db", "upgrade").output.splitlines()[0] == f"at revision {migrations.head()}"


def test_current_prints_the_revision_and_the_newest_known_one(command: Command):
    """As JSON for scripts, and as a line for people."""
    command("db", "downgrade", "0001")

    shown = json.loads(command("db", "current", "--json").output)

    assert shown == {"revision": "0001", "head": migrations.head()}
    assert command("db", "current").output == f"at revision 0001; the newest known revision is {migrations.head()}\n"


def test_an_intact_database_passes_the_check(command: Command):
    """Exit 0 and one line; as JSON an empty list."""
    checked, as_json = command("db", "check"), command("db", "check", "--json")

    assert (checked.exit_code, checked.output) == (0, "the database is intact\n")
    assert json.loads(as_json.output) == {"ok": True, "faults": []}


@pytest.fixture
def as_owner(databases: Databases, folder: Path) -> Callable[[str], None]:
    """Run a statement as the role that owns the tables."""

    def run(sql: str) -> None:
        with closing(Database(databases.owner_url(folder))) as database, database.write() as connection:
            connection.exec_driver_sql(sql)

    return run


def test_a_missing_trigger_fails_the_check(command: Command, databases: Databases, as_owner):
    """The command that repairs it is named."""
    as_owner(f"DROP TRIGGER trg_memory_items_fts_update{' ON memory_items' * (databases.dialect == 'postgresql')}")

    checked = command("db", "check")

    assert (checked.exit_code, "fts rebuild" in checked.output) == (1, True)


@pytest.mark.parametrize(
    "harm",
    [
        "DROP INDEX ix_memory_sources_memory_item_id",
        "DROP TABLE memory_sources",
        "ALTER TABLE teams ADD COLUMN strange TEXT",
    ],
)
def test_tables_that_differ_from_the_models_fail_the_check(command: Command, as_owner, harm: str):
    """One line per fault."""
    as_owner(harm)

    checked = command("db", "check")

    assert (checked.exit_code, "differs from the models" in checked.output) == (1, True)


def test_an_older_database_fails_the_check_and_is_not_upgraded_by_it(command: Command):
    """A check changes nothing."""
    command("db", "downgrade", "0001")

    assert "run `cmem-server db upgrade`" in command("db", "check").output
    assert json.loads(command("db", "current", "--json").output)["revision"] == "0001"


@pytest.mark.parametrize(
    "arguments", [("db", "upgrade"), ("projects", "list", "--team", "a"), ("fts", "check"), ("serve",)]
)
def test_every_command_refuses_a_newer_database_in_one_line(command: Command, as_owner, arguments: tuple[str, ...]):
    """Both revisions are named, and the exit code is 1."""
    as_owner("UPDATE alembic_version SET version_num = '9999'")

    refused = command(*arguments)

    assert refused.exit_code == 1
    assert "9999" in refused.output
    assert migrations.head() in refused.output
    assert len(refused.output.splitlines()) == 1


@pytest.mark.parametrize("arguments", [("db", "upgrade", "7777"), ("db", "downgrade", "7777")])
def test_an_unknown_revision_is_one_line(command: Command, arguments: tuple[str, ...]):
    """A typo ends without a stack trace."""
    refused = command(*arguments)

    assert refused.exit_code == 1
    assert refused.output.startswith("Error: ")
    assert len(refused.output.splitlines()) == 1


@pytest.mark.sqlite
def test_a_file_that_is_not_a_database_is_one_line(command: Command, folder: Path):
    """Damage ends without a stack trace."""
    (folder / "cmem.db").write_bytes(b"not a database" * 1000)

    for arguments in (("db", "check"), ("db", "current"), ("db", "upgrade"), ("fts", "check")):
        refused = command(*arguments)
        assert (refused.exit_code, len(refused.output.splitlines())) == (1, 1), refused.output
        assert refused.output.startswith("Error: ")


@pytest.fixture
def unmigrated(databases: Databases, tmp_path: Path) -> Iterator[Home]:
    """A database without a table, with both roles."""
    owner = databases.unmigrated_url(tmp_path)
    yield Home(tmp_path, {"database_url": databases.url(tmp_path), "database_admin_url": owner})
    databases.drop(tmp_path)


@pytest.mark.postgresql
def test_an_upgrade_grants_the_role_of_the_servers_its_privileges(unmigrated: Home):
    """Then a server starts; only the owner's role can create tables."""
    first, again = unmigrated.run("db", "upgrade"), unmigrated.run("db", "upgrade")
    with unmigrated.serving() as started:
        assert "KEY" in started.exported

    expected = f"at revision {migrations.head()}\nrole cmem_server has its privileges\n"
    assert (first.stdout, again.stdout) == (expected, expected)
    with unmigrated.database() as database, pytest.raises(DBAPIError, match="denied"), database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE own (id INTEGER)")


@pytest.mark.postgresql
def test_an_upgrade_at_head_does_not_hide_damage(command: Command, as_owner):
    """What somebody dropped remains a fault."""
    as_owner("DROP TRIGGER trg_memory_items_fts_update ON memory_items")

    command("db", "upgrade")

    assert command("db", "check").exit_code == 1


@pytest.mark.postgresql
@pytest.mark.parametrize("revision", [None, "0001"])
def test_a_server_does_not_start_on_a_database_that_was_not_upgraded(unmigrated: Home, revision: str | None):
    """One line says what to run: the server's role may not do it itself."""
    if revision is not None:
        unmigrated.run("db", "upgrade", revision)

    refused = unmigrated.run("serve", "--port", "0")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"Error: The database is at revision {revision}, expected {migrations.head()}:"
        " run `cmem-server db upgrade` first.\n"
    )


def test_a_database_server_that_does_not_answer_is_one_line(tmp_path: Path):
    """With the address that was tried, and without the password."""
    nowhere = Home(tmp_path, {"database_url": "postgresql+psycopg://cmem_server:hidden@127.0.0.1:1/cmem"})

    for arguments in (("serve", "--port", "0"), ("db", "upgrade"), ("db", "current")):
        refused = nowhere.run(*arguments)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1), refused.stderr
        assert '"127.0.0.1", port 1' in refused.stderr
        assert "hidden" not in refused.stderr
