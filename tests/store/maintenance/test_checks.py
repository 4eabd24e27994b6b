"""The health checks that only one dialect needs."""

import pytest

from app.store.database import Database
from app.store.maintenance import dialects, sqlite_checks
from app.store.maintenance.checks import Role


@pytest.mark.sqlite
def test_large_wal_is_a_warning(database: Database, monkeypatch: pytest.MonkeyPatch):
    """The remedy is the maintenance command, which runs a checkpoint."""
    monkeypatch.setattr(sqlite_checks, "_LARGE_WAL_BYTES", 256 * 1024 * 1024)
    monkeypatch.setattr(sqlite_checks.sqlite, "sizes", lambda _: {"wal": 300 * 1024 * 1024})

    (check,) = dialects.checks_of(database.dialect).file_checks(database)
    result = check.run()

    assert (result.what, result.state) == ("log", "warning")
    assert result.detail == "The WAL has grown to 300 MB and needs a checkpoint."
    assert result.remedy == "run `cmem-server maintenance run`"


@pytest.mark.postgresql
def test_role_of_the_server_has_least_privilege(database: Database):
    """It is no superuser, owns no table, and cannot bypass row-level security."""
    with database.read() as connection:
        assert dialects.checks_of(database.dialect).role(connection) == Role("cmem_server", [])


def test_every_content_check_passes_on_a_fresh_database(database: Database):
    """The checks of either dialect run."""
    checks = dialects.checks_of(database.dialect).content_checks(database)

    assert [check.run().state for check in checks] == ["ok"] * len(checks)
    assert len(checks) > 0
