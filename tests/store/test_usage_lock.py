"""Using a database: together with others, or alone to replace it."""

import pytest

from app.errors import Conflict
from app.store import usage_lock
from app.store.database import Database


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_lock, "_GRACE_SECONDS", 0.1)


def test_servers_use_a_database_together(database: Database):
    """Any number of them."""
    with usage_lock.shared(database.url), usage_lock.shared(database.url):
        pass


def test_exclusive_use_waits_for_no_server(database: Database):
    """It is refused with what to do, and granted once the server has stopped."""
    with (
        usage_lock.shared(database.url),
        pytest.raises(Conflict, match="stop it first"),
        usage_lock.exclusive(database.url),
    ):
        pass
    with usage_lock.exclusive(database.url):
        pass


def test_no_server_starts_during_exclusive_use(database: Database):
    """Nor does a second command that needs the database alone."""
    with usage_lock.exclusive(database.url):
        with pytest.raises(Conflict, match="being restored"), usage_lock.shared(database.url):
            pass
        with pytest.raises(Conflict), usage_lock.exclusive(database.url):
            pass
    with usage_lock.shared(database.url):
        pass


@pytest.mark.postgresql
def test_open_connections_of_a_server_count_without_its_lock(database: Database):
    """A server that lost its lock with a broken connection still uses the database."""
    with (
        database.read(),
        pytest.raises(Conflict),
        usage_lock.exclusive(database.url),
    ):
        pass
