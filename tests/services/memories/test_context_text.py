"""What stands beside a memory in its session is lent to it for search."""

import pytest

from app.services.memories import context_text, memories
from app.services.operations import fulltext_check
from app.services.projects import sessions
from tests.services import library


@pytest.fixture
def shelf(stores, tmp_path):
    with library.opened(stores, tmp_path) as opened:
        yield opened


def begin_session(shelf, name: str) -> str:
    with shelf.database.write() as connection:
        begun = sessions.Start(project_id=shelf.project_id, content_session_id=name)
        return sessions.start(connection, shelf.caller, begun)[0].id


@pytest.fixture
def session_id(shelf):
    return begin_session(shelf, "one")


def say(shelf, session_id: str, *narratives: str):
    """Store memories one after the other at the same time, as a batch does."""
    return [shelf.remember(each, server_session_id=session_id, created_at_epoch=1_000) for each in narratives]


def change(shelf, row, **changes) -> None:
    with shelf.database.write() as connection:
        memories.change(connection, shelf.caller, row.id, changes, precondition=lambda _: True)


def remove(shelf, row) -> None:
    with shelf.database.write() as connection:
        memories.remove(connection, shelf.caller, row.id, precondition=lambda _: True)


def lent(shelf) -> list[str | None]:
    with shelf.database.read() as connection:
        return list(connection.exec_driver_sql("SELECT neighbour_text FROM memory_items ORDER BY seq").scalars())


def test_each_memory_is_lent_what_stands_beside_it(shelf, session_id):
    """The one before and the one after, whatever came last."""
    say(shelf, session_id, "alpha", "beta", "gamma", "delta", "epsilon")
    assert lent(shelf) == ["beta", "alpha\ngamma", "beta\ndelta", "gamma\nepsilon", "delta"]


def test_an_answer_is_found_by_its_question(shelf, session_id):
    """The words of a neighbour find, below those that hold them."""
    say(shelf, session_id, "which gasket do we need?", "the copper one")
    assert shelf.narratives("gasket") == ["which gasket do we need?", "the copper one"]


def test_what_comes_late_stands_where_it_belongs(shelf, session_id):
    """A memory of an earlier time is lent to those around that time."""
    shelf.remember("first", server_session_id=session_id, created_at_epoch=1_000)
    shelf.remember("third", server_session_id=session_id, created_at_epoch=3_000)
    shelf.remember("second", server_session_id=session_id, created_at_epoch=2_000)
    assert lent(shelf) == ["second", "second", "first\nthird"]


def test_a_changed_memory_lends_what_it_says_now(shelf, session_id):
    """An edit is seen by both neighbours, and keeps what they lend."""
    _, middle, _ = say(shelf, session_id, "alpha", "beta", "gamma")
    change(shelf, middle, narrative="new")
    assert lent(shelf) == ["new", "alpha\ngamma", "new"]


def test_a_memory_that_moves_is_lent_to_its_new_neighbours(shelf, session_id):
    """The session that it left closes up, and it stands among those of the other."""
    _, moving, _ = say(shelf, session_id, "alpha", "beta", "gamma")
    other = begin_session(shelf, "two")
    say(shelf, other, "delta")
    change(shelf, moving, server_session_id=other)
    assert lent(shelf) == ["gamma", "delta", "alpha", "beta"]


def test_a_memory_that_leaves_its_session_is_lent_nothing(shelf, session_id):
    """Without a session there are no neighbours."""
    first, _ = say(shelf, session_id, "alpha", "beta")
    change(shelf, first, server_session_id=None)
    assert lent(shelf) == [None, None]


def test_a_deleted_memory_lends_nothing(shelf, session_id):
    """Those around it become neighbours."""
    rows = say(shelf, session_id, "alpha", "beta", "gamma", "delta")
    remove(shelf, rows[1])
    assert lent(shelf) == ["gamma", "alpha\ndelta", "gamma"]


def test_a_rebuild_sets_every_session_right(shelf, session_id, monkeypatch):
    """What another program wrote without is lent as if it had come through the API."""
    monkeypatch.setattr(context_text, "_ROWS_A_TURN", 2)
    say(shelf, session_id, "alpha", "数据库", "gamma")
    say(shelf, begin_session(shelf, "two"), "delta", "epsilon")
    before = lent(shelf)
    with shelf.database.write() as connection:
        connection.exec_driver_sql("UPDATE memory_items SET neighbour_text = NULL")
    fulltext_check.rebuild_full_text(shelf.database, lambda _: None)
    assert lent(shelf) == before


def test_another_session_lends_nothing(shelf, session_id):
    """Only what was said in the same session stands beside a memory."""
    say(shelf, session_id, "alpha")
    shelf.remember("beta")
    assert lent(shelf) == [None, None]
