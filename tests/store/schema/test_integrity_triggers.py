"""What the database itself refuses, whoever writes: a plain sqlite3 shell with foreign keys off among them, and a psql
prompt as the role that owns the tables.
"""

import sqlite3

import pytest
from psycopg.errors import CheckViolation, InsufficientPrivilege

from tests.store.raw_writer import RawWriter

pytestmark = pytest.mark.parametrize(
    "raw", ["owner", pytest.param("server", marks=pytest.mark.postgresql)], indirect=True
)


def of_sqlite(statement: str):
    """A statement in SQLite's own tongue."""
    return pytest.param(statement, marks=pytest.mark.sqlite)


INSERTS = ["INSERT", *map(of_sqlite, ("INSERT OR IGNORE", "INSERT OR REPLACE", "INSERT OR ROLLBACK"))]
UPDATES = ["UPDATE", *map(of_sqlite, ("UPDATE OR IGNORE", "UPDATE OR REPLACE"))]
A1 = {"team_id": "a", "project_id": "a1"}
B1 = {"team_id": "b", "project_id": "b1"}


@pytest.fixture
def refused():
    """A context in which the database refuses what is written."""
    return pytest.raises((sqlite3.IntegrityError, CheckViolation))


@pytest.mark.parametrize("verb", INSERTS)
@pytest.mark.parametrize("table", ["agent_events", "memory_items"])
@pytest.mark.parametrize("session", ["session of a2", "session of b1", "session of nobody"])
def test_nothing_joins_the_session_of_another_project(raw: RawWriter, refused, verb: str, table: str, session: str):
    """A row whose session is not of its own project is refused."""
    with refused:
        raw.insert(table, verb=verb, **A1, server_session_id=session)

    assert raw.run(f"SELECT count(*) FROM {table}") == [(0,)]


@pytest.mark.parametrize("verb", UPDATES)
@pytest.mark.parametrize("table", ["agent_events", "memory_items"])
@pytest.mark.parametrize("session", ["session of a2", "session of b1"])
def test_nothing_is_moved_into_the_session_of_another_project(
    raw: RawWriter, refused, verb: str, table: str, session: str
):
    """An update that names a session of another project is refused."""
    row = raw.insert(table, **A1, server_session_id="session of a1")

    with refused:
        raw.run(f"{verb} {table} SET server_session_id = ? WHERE id = ?", session, row)

    assert raw.run(f"SELECT server_session_id FROM {table}") == [("session of a1",)]


@pytest.mark.parametrize("verb", UPDATES)
@pytest.mark.parametrize("table", ["agent_events", "memory_items"])
@pytest.mark.parametrize("place", [("a", "a2"), ("b", "b1")])
def test_a_row_does_not_leave_its_session_for_another_project(raw: RawWriter, refused, verb, table, place):
    """A row that belongs to a session stays in that session's project."""
    row = raw.insert(table, **A1, server_session_id="session of a1")

    with refused:
        raw.run(f"{verb} {table} SET team_id = ?, project_id = ? WHERE id = ?", *place, row)

    assert raw.run(f"SELECT team_id, project_id FROM {table}") == [("a", "a1")]


@pytest.mark.parametrize("verb", UPDATES)
@pytest.mark.parametrize("place", [("a", "a2"), ("b", "b1")])
def test_a_memory_keeps_its_project(raw: RawWriter, refused, verb, place):
    """A memory without a session does not move either: its vectors and the statistics would stay behind."""
    raw.insert("memory_items", **A1)

    with refused:
        raw.run(f"{verb} memory_items SET team_id = ?, project_id = ?", *place)


@pytest.mark.parametrize("verb", INSERTS)
@pytest.mark.parametrize("table", ["server_sessions", "agent_events", "memory_items", "api_keys"])
def test_a_row_cannot_name_the_project_of_another_team(raw: RawWriter, refused, verb: str, table: str):
    """Team a cannot have a row in project b1, nor in one that does not exist."""
    for project in ("b1", "no such project"):
        with refused:
            raw.insert(table, verb=verb, team_id="a", project_id=project)


@pytest.mark.parametrize("verb", UPDATES)
@pytest.mark.parametrize("table", ["server_sessions", "agent_events", "memory_items", "memory_sources", "api_keys"])
@pytest.mark.parametrize("change", ["team_id = 'b'", "project_id = 'b1'"])
def test_a_row_does_not_change_its_team_alone_nor_its_project_alone(raw: RawWriter, refused, verb, table, change):
    """Team and project of a row always belong together."""
    parent = {"memory_item_id": raw.insert("memory_items", **A1)} if table == "memory_sources" else {}
    row = raw.insert(table, **A1, **parent)

    with refused:
        raw.run(f"{verb} {table} SET {change} WHERE id = ?", row)


@pytest.mark.parametrize("verb", UPDATES)
@pytest.mark.parametrize("child", ["agent_events", "memory_items"])
def test_a_session_with_children_cannot_move(raw: RawWriter, refused, verb: str, child: str):
    """A session that has an event or a memory stays in its project."""
    raw.insert(child, **A1, server_session_id="session of a1")

    with refused:
        raw.run(f"{verb} server_sessions SET project_id = 'a2' WHERE id = 'session of a1'")
    with refused:
        raw.run(f"{verb} server_sessions SET team_id = 'b', project_id = 'b1' WHERE id = 'session of a1'")


def test_a_session_without_children_may_move(raw: RawWriter):
    """The guard of sessions asks for children, not for the table."""
    raw.run("UPDATE server_sessions SET project_id = 'a2' WHERE id = 'session of a1'")

    assert raw.run("SELECT project_id FROM server_sessions WHERE id = 'session of a1'") == [("a2",)]


@pytest.mark.parametrize("verb", UPDATES)
def test_a_session_cannot_take_the_id_of_another(raw: RawWriter, refused, verb: str):
    """A childless session does not slip under the children of another by taking its id."""
    raw.insert("memory_items", **A1, server_session_id="session of a1")

    with refused:
        raw.run(f"{verb} server_sessions SET id = 'session of a1' WHERE id = 'session of b1'")


def test_the_children_of_a_deleted_session_wait_for_no_other(raw: RawWriter):
    """Deleting a session frees its children even with foreign keys off, so that no other project's can take its id."""
    raw.insert("memory_items", **A1, server_session_id="session of a1")
    raw.insert("agent_events", **A1, server_session_id="session of a1")

    raw.run("DELETE FROM server_sessions WHERE id = 'session of a1'")

    raw.insert("server_sessions", id="session of a1", **B1)
    assert raw.run("SELECT server_session_id FROM memory_items") == [(None,)]
    assert raw.run("SELECT server_session_id FROM agent_events") == [(None,)]


@pytest.mark.parametrize("change", ["id = 'a9'", "team_id = 'b'"])
@pytest.mark.parametrize("verb", UPDATES)
def test_a_project_keeps_its_id_and_its_team(raw: RawWriter, refused, verb: str, change: str):
    """A project with everything in it never becomes another team's."""
    with refused:
        raw.run(f"{verb} projects SET {change} WHERE id = 'a1'")


@pytest.mark.parametrize("verb", INSERTS)
@pytest.mark.parametrize("owner", ["a2", "b1"])
def test_a_memory_is_not_superseded_by_one_of_another_project(raw: RawWriter, refused, verb: str, owner: str):
    """`superseded_by` names a memory of the same project."""
    stranger = raw.insert("memory_items", team_id=owner[0], project_id=owner)

    with refused:
        raw.insert("memory_items", verb=verb, **A1, superseded_by=stranger)


@pytest.mark.parametrize("verb", INSERTS)
@pytest.mark.parametrize("owner", ["a2", "b1"])
def test_a_source_belongs_to_the_project_of_its_memory(raw: RawWriter, refused, verb: str, owner: str):
    """Where a memory came from is told in its own project."""
    stranger = raw.insert("memory_items", team_id=owner[0], project_id=owner)

    with refused:
        raw.insert("memory_sources", verb=verb, **A1, memory_item_id=stranger)


@pytest.mark.parametrize("verb", INSERTS)
def test_a_key_belongs_to_a_member_of_its_team(raw: RawWriter, refused, verb: str):
    """A key's member is one of the key's own team."""
    raw.insert("team_members", team_id="b", user_id="u")

    with refused:
        raw.insert("api_keys", verb=verb, team_id="a", user_id="u")


@pytest.mark.sqlite
@pytest.mark.parametrize("same", ["seq", "id", "content_hash"])
def test_a_memory_is_never_replaced(raw: RawWriter, refused, same: str):
    """OR REPLACE would leave the old row's words findable: its delete triggers do not run."""
    raw.insert("memory_items", **A1, seq=7, id="m", content_hash="h", text="first")

    with refused:
        raw.insert("memory_items", verb="INSERT OR REPLACE", **A1, **{same: {"seq": 7, "id": "m"}.get(same, "h")})

    assert raw.run("SELECT text FROM memory_items") == [("first",)]


@pytest.mark.sqlite
@pytest.mark.parametrize("change", ["seq = 8", "id = 'other'", "content_hash = 'other'"])
def test_an_update_replaces_no_memory(raw: RawWriter, refused, change: str):
    """UPDATE OR REPLACE does not push out another row by taking its key."""
    raw.insert("memory_items", **A1, seq=7)
    raw.insert("memory_items", **A1, seq=8, id="other", content_hash="other")

    with refused:
        raw.run(f"UPDATE OR REPLACE memory_items SET {change} WHERE seq = 7")

    assert raw.run("SELECT count(*) FROM memory_items") == [(2,)]


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("table", "same"),
    [
        ("teams", {"id": "a"}),
        ("teams", {"slug": "s"}),
        ("projects", {"id": "a1", "team_id": "a"}),
        ("projects", {"id": "b1", "team_id": "a"}),
        ("projects", {"slug": "s", "team_id": "a"}),
        ("projects", {"root_path": "/p", "team_id": "a"}),
        ("server_sessions", {"id": "session of a1", **A1}),
        ("server_sessions", {"id": "session of a1", **B1}),
        ("server_sessions", {"external_session_id": "e", **A1}),
    ],
)
def test_no_parent_is_replaced_from_above_its_children(raw: RawWriter, refused, table: str, same: dict[str, str]):
    """OR REPLACE does not take a team, a project or a session away from what belongs to it."""
    raw.run("UPDATE teams SET slug = 's' WHERE id = 'a'")
    raw.run("UPDATE projects SET slug = 's', root_path = '/p' WHERE id = 'a1'")
    raw.run("UPDATE server_sessions SET external_session_id = 'e' WHERE id = 'session of a1'")
    before = raw.run(f"SELECT * FROM {table}")

    with refused:
        raw.insert(table, verb="INSERT OR REPLACE", **same)

    assert raw.run(f"SELECT * FROM {table}") == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_log SET action = 'nothing'",
        "DELETE FROM audit_log",
        of_sqlite("UPDATE OR REPLACE audit_log SET id = 'other'"),
        of_sqlite(
            "INSERT OR REPLACE INTO audit_log SELECT seq, 'other', team_id, project_id, actor_id, user_id, 'nothing',"
            " target_type, target_id, outcome, count, request_id, created_at_epoch FROM audit_log"
        ),
    ],
)
def test_the_audit_log_is_append_only(raw: RawWriter, refused, statement: str):
    """No entry is changed, replaced or deleted."""
    raw.insert("audit_log", id="entry", team_id="a")
    before = raw.run("SELECT * FROM audit_log")

    with refused:
        raw.run(statement)

    assert raw.run("SELECT * FROM audit_log") == before


@pytest.mark.postgresql
def test_the_audit_log_is_not_emptied_at_once(raw: RawWriter):
    """TRUNCATE runs no trigger of rows; the log has one for it."""
    raw.insert("audit_log", id="entry", team_id="a")

    with pytest.raises((CheckViolation, InsufficientPrivilege)):
        raw.run("TRUNCATE audit_log")

    assert raw.run("SELECT id FROM audit_log") == [("entry",)]


def test_only_audit_entries_behind_the_retention_mark_can_go(raw: RawWriter):
    """The one way to delete from the log is to say first how far back it reaches."""
    raw.insert("audit_log", id="old", created_at_epoch=1)
    raw.insert("audit_log", id="new", created_at_epoch=9)
    raw.run("INSERT INTO audit_retention VALUES (1, 5)")

    raw.run("DELETE FROM audit_log WHERE created_at_epoch < 5")

    assert raw.run("SELECT id FROM audit_log") == [("new",)]
