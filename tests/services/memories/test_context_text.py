"""Adjacent messages of a session are searched with a memory."""

import pytest

from app.services.memories import context_text, memories
from app.services.operations import fulltext_check
from app.services.projects import sessions
from tests.services import library


@pytest.fixture
def shelf(databases, tmp_path):
    with library.opened(databases, tmp_path) as opened:
        yield opened


def begin_session(shelf, name: str) -> str:
    with shelf.database.write() as connection:
        new = sessions.NewSession(project_id=shelf.project_id, content_session_id=name)
        return sessions.start(connection, shelf.caller, new)[0].id


@pytest.fixture
def session_id(shelf):
    return begin_session(shelf, "one")


def say(shelf, session_id: str, *narratives: str):
    """Store memories one after the other with the same time, as a batch does."""
    return [shelf.remember(each, server_session_id=session_id, created_at_epoch=1_000) for each in narratives]


def change(shelf, row, **changes) -> None:
    with shelf.database.write() as connection:
        memories.change(connection, shelf.caller, row.id, changes, precondition=lambda _: True)


def remove(shelf, row) -> None:
    with shelf.database.write() as connection:
        memories.remove(connection, shelf.caller, row.id, precondition=lambda _: True)


def context_texts(shelf) -> list[str | None]:
    with shelf.database.read() as connection:
        return list(connection.exec_driver_sql("SELECT neighbour_text FROM memory_items ORDER BY seq").scalars())


def test_each_memory_gets_the_text_of_its_neighbours(shelf, session_id):
    """The previous and the next one, whichever was inserted last."""
    say(shelf, session_id, "alpha", "beta", "gamma", "delta", "epsilon")
    assert context_texts(shelf) == ["beta", "alpha\ngamma", "beta\ndelta", "gamma\nepsilon", "delta"]


def test_answer_is_found_by_its_question(shelf, session_id):
    """Matches in the context text rank below matches in the memory itself."""
    say(shelf, session_id, "which gasket do we need?", "the copper one")
    assert shelf.narratives("gasket") == ["which gasket do we need?", "the copper one"]


def test_late_memory_is_inserted_at_its_time(shelf, session_id):
    """A memory with an earlier time becomes context of those around that time."""
    shelf.remember("first", server_session_id=session_id, created_at_epoch=1_000)
    shelf.remember("third", server_session_id=session_id, created_at_epoch=3_000)
    shelf.remember("second", server_session_id=session_id, created_at_epoch=2_000)
    assert context_texts(shelf) == ["second", "second", "first\nthird"]


def test_changed_memory_updates_its_neighbours(shelf, session_id):
    """Both neighbours get the new text, and the changed memory keeps its own context text."""
    _, middle, _ = say(shelf, session_id, "alpha", "beta", "gamma")
    change(shelf, middle, narrative="new")
    assert context_texts(shelf) == ["new", "alpha\ngamma", "new"]


def test_moved_memory_updates_both_sessions(shelf, session_id):
    """The gap in the old session closes, and the memory gets new neighbours."""
    _, moved, _ = say(shelf, session_id, "alpha", "beta", "gamma")
    other = begin_session(shelf, "two")
    say(shelf, other, "delta")
    change(shelf, moved, server_session_id=other)
    assert context_texts(shelf) == ["gamma", "delta", "alpha", "beta"]


def test_memory_without_a_session_has_no_context_text(shelf, session_id):
    """And it no longer is the context of others."""
    first, _ = say(shelf, session_id, "alpha", "beta")
    change(shelf, first, server_session_id=None)
    assert context_texts(shelf) == [None, None]


def test_deleted_memory_is_removed_from_context_texts(shelf, session_id):
    """Those around it become neighbours."""
    rows = say(shelf, session_id, "alpha", "beta", "gamma", "delta")
    remove(shelf, rows[1])
    assert context_texts(shelf) == ["gamma", "alpha\ndelta", "gamma"]


def test_rebuild_refreshes_every_session(shelf, session_id, monkeypatch):
    """Memories written by another program get the same context text as those written through the API."""
    monkeypatch.setattr(context_text, "_ROWS_PER_TRANSACTION", 2)
    say(shelf, session_id, "alpha", "数据库", "gamma")
    say(shelf, begin_session(shelf, "two"), "delta", "epsilon")
    before = context_texts(shelf)
    with shelf.database.write() as connection:
        connection.exec_driver_sql("UPDATE memory_items SET neighbour_text = NULL")
    fulltext_check.rebuild_full_text(shelf.database, lambda _: None)
    assert context_texts(shelf) == before


def test_memories_of_other_sessions_are_no_context(shelf, session_id):
    """Only messages of the same session are neighbours."""
    say(shelf, session_id, "alpha")
    shelf.remember("beta")
    assert context_texts(shelf) == [None, None]
