"""What stands beside a memory in its session is lent to it for search."""

import pytest

from app.services import neighbours, sessions
from tests.services import library


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return library.empty_store(tmp_path_factory.mktemp("template") / "cmem.db")


@pytest.fixture
def shelf(template, tmp_path):
    with library.opened(template, tmp_path / "cmem.db") as opened:
        yield opened


@pytest.fixture
def session_id(shelf):
    with shelf.database.write() as connection:
        begun = sessions.Start(project_id=shelf.project_id, content_session_id="one")
        return sessions.start(connection, shelf.caller, begun)[0].id


def say(shelf, session_id: str, *narratives: str):
    """Store memories one after the other at the same time, as a batch does, and lend around each."""
    rows = []
    for narrative in narratives:
        row = shelf.remember(narrative, server_session_id=session_id, created_at_epoch=1_000)
        refresh(shelf, row)
        rows.append(row)
    return rows


def refresh(shelf, row) -> None:
    with shelf.database.write() as connection:
        neighbours.refresh_around(connection, row.server_session_id, created_at_epoch=row.created_at_epoch, seq=row.seq)


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


def test_a_changed_memory_lends_what_it_says_now(shelf, session_id):
    """An edit is seen by both neighbours."""
    _, middle, _ = say(shelf, session_id, "alpha", "beta", "gamma")
    with shelf.database.write() as connection:
        connection.exec_driver_sql("UPDATE memory_items SET narrative = 'new' WHERE seq = ?", (middle.seq,))
    refresh(shelf, middle)
    assert lent(shelf) == ["new", "alpha\ngamma", "new"]


def test_a_deleted_memory_lends_nothing(shelf, session_id):
    """Those around it become neighbours."""
    rows = say(shelf, session_id, "alpha", "beta", "gamma", "delta")
    with shelf.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM memory_items WHERE seq = ?", (rows[1].seq,))
    refresh(shelf, rows[1])
    assert lent(shelf) == ["gamma", "alpha\ndelta", "gamma"]


def test_a_whole_session_can_be_set_right(shelf, session_id):
    """A rebuild gives what one by one gives."""
    say(shelf, session_id, "alpha", "数据库", "gamma")
    before = lent(shelf)
    with shelf.database.write() as connection:
        connection.exec_driver_sql("UPDATE memory_items SET neighbour_text = NULL")
        neighbours.refresh_session(connection, session_id)
    assert lent(shelf) == before


def test_another_session_lends_nothing(shelf, session_id):
    """Only what was said in the same session stands beside a memory."""
    say(shelf, session_id, "alpha")
    shelf.remember("beta")
    assert lent(shelf) == [None, None]
