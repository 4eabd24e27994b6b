"""What the database itself rejects from any client: a sqlite3 shell without foreign keys, or the tables' owner."""

import sqlite3

import pytest
from psycopg.errors import CheckViolation, InsufficientPrivilege

from tests.store.raw_writer import RawWriter

pytestmark = pytest.mark.parametrize(
    "raw", ["owner", pytest.param("server", marks=pytest.mark.postgresql)], indirect=True
)


def sqlite_only(statement: str):
    """A statement that only SQLite has."""
    return pytest.param(statement, marks=pytest.mark.sqlite)


INSERTS = ["INSERT", *map(sqlite_only, ("INSERT OR IGNORE", "INSERT OR REPLACE", "INSERT OR ROLLBACK"))]
UPDATES = ["UPDATE", *map(sqlite_only, ("UPDATE OR IGNORE", "UPDATE OR REPLACE"))]
A1 = {"team_id": "a", "project_id": "a1"}
B1 = {"team_id": "b", "project_id": "b1"}


@pytest.fixture
def rejected():
    """A context in which the database must reject a write."""
    return pytest.raises((sqlite3.IntegrityError, CheckViolation))


@pytest.mark.parametrize("verb", INSERTS)
@pytest.mark.parametrize("table", ["agent_events", "memory_items"])
@pytest.mark.parametrize("session", ["session of a2", "session of b1", "session of nobody"])
def test_row_cannot_join_session_of_another_project(raw: RawWriter, rejected, verb: str, table: str, session: str):
    """An insert that names another project's session is rejected."""
    with rejected:
        raw.insert(table, verb=verb, **A1, server_session_id=session)

    assert raw.run(f"SELECT count(*) FROM {table}") == [(0,)]


@pytest.mark.parametrize("verb", UPDATES)
@pytest.mark.parametrize("table", ["agent_events", "memory_items"])
@pytest.mark.parametrize("session", ["session of a2", "session of b1"])
def test_row_cannot_move_to_session_of_another_project(raw: RawWriter, rejected, verb: str, table: str, session: str):
    """An update that names another project's session is rejected."""
    row = raw.insert(table, **A1, server_session_id="session of a1")

    with rejected:
        raw.run(f"{verb} {table} SET server_session_id = ? WHERE id = ?", session, row)

    assert raw.run(f"SELECT server_session_id FROM {table}") == [("session of a1",)]


@pytest.mark.parametrize("verb", UPDATES)
@pytest.mark.parametrize("table", ["agent_events", "memory_items"])
@pytest.mark.parametrize("target", [("a", "a2"), ("b", "b1")])
def test_row_with_session_cannot_move_to_another_project(raw: RawWriter, rejected, verb, table, target):
    """A row that belongs to a session stays in that session's project."""
    row = raw.insert(table, **A1, server_session_id="session of a1")

    with rejected:
        raw.run(f"{verb} {table} SET team_id = ?, project_id = ? WHERE id = ?", *target, row)

    assert raw.run(f"SELECT team_id, project_id FROM {table}") == [("a", "a1")]


@pytest.mark.parametrize("verb", UPDATES)
@pytest.mark.parametrize("target", [("a", "a2"), ("b", "b1")])
def test_memory_cannot_move_to_another_project(raw: RawWriter, rejected, verb, target):
    """Not even without a session: its vectors and statistics would stay in the old project."""
    raw.insert("memory_items", **A1)

    with rejected:
        raw.run(f"{verb} memory_items SET team_id = ?, project_id = ?", *target)


@pytest.mark.parametrize("verb", INSERTS)
@pytest.mark.parametrize("table", ["server_sessions", "agent_events", "memory_items", "api_keys"])
def test_row_cannot_name_project_of_another_team(raw: RawWriter, rejected, verb: str, table: str):
    """Team a cannot have a row in project b1, nor in one that does not exist."""
    for project in ("b1", "no such project"):
        with rejected:
            raw.insert(table, verb=verb, team_id="a", project_id=project)


@pytest.mark.parametrize("verb", UPDATES)
@pytest.mark.parametrize("table", ["server_sessions", "agent_events", "memory_items", "memory_sources", "api_keys"])
@pytest.mark.parametrize("change", ["team_id = 'b'", "project_id = 'b1'"])
def test_row_cannot_change_only_its_team_or_only_its_project(raw: RawWriter, rejected, verb, table, change):
    """Team and project of a row always belong together."""
    parent = {"memory_item_id": raw.insert("memory_items", **A1)} if table == "memory_sources" else {}
    row = raw.insert(table, **A1, **parent)

    with rejected:
        raw.run(f"{verb} {table} SET {change} WHERE id = ?", row)


@pytest.mark.parametrize("verb", UPDATES)
@pytest.mark.parametrize("child", ["agent_events", "memory_items"])
def test_session_with_children_cannot_move(raw: RawWriter, rejected, verb: str, child: str):
    """A session that has an event or a memory stays in its project."""
    raw.insert(child, **A1, server_session_id="session of a1")

    with rejected:
        raw.run(f"{verb} server_sessions SET project_id = 'a2' WHERE id = 'session of a1'")
    with rejected:
        raw.run(f"{verb} server_sessions SET team_id = 'b', project_id = 'b1' WHERE id = 'session of a1'")


def test_session_without_children_can_move(raw: RawWriter):
    """The trigger looks for children of this session, not for any children."""
    raw.run("UPDATE server_sessions SET project_id = 'a2' WHERE id = 'session of a1'")

    assert raw.run("SELECT project_id FROM server_sessions WHERE id = 'session of a1'") == [("a2",)]


@pytest.mark.parametrize("verb", UPDATES)
def test_session_cannot_take_id_of_another(raw: RawWriter, rejected, verb: str):
    """A session without children cannot adopt another's children by taking its id."""
    raw.insert("memory_items", **A1, server_session_id="session of a1")

    with rejected:
        raw.run(f"{verb} server_sessions SET id = 'session of a1' WHERE id = 'session of b1'")


def test_children_of_deleted_session_are_detached(raw: RawWriter):
    """Even with foreign keys off: otherwise another project's session could adopt them by taking the id."""
    raw.insert("memory_items", **A1, server_session_id="session of a1")
    raw.insert("agent_events", **A1, server_session_id="session of a1")

    raw.run("DELETE FROM server_sessions WHERE id = 'session of a1'")

    raw.insert("server_sessions", id="session of a1", **B1)
    assert raw.run("SELECT server_session_id FROM memory_items") == [(None,)]
    assert raw.run("SELECT server_session_id FROM agent_events") == [(None,)]


@pytest.mark.parametrize("change", ["id = 'a9'", "team_id = 'b'"])
@pytest.mark.parametrize("verb", UPDATES)
def test_project_cannot_change_its_id_or_team(raw: RawWriter, rejected, verb: str, change: str):
    """A project, with everything in it, never moves to another team."""
    with rejected:
        raw.run(f"{verb} projects SET {change} WHERE id = 'a1'")


@pytest.mark.parametrize("verb", INSERTS)
@pytest.mark.parametrize("owner", ["a2", "b1"])
def test_memory_cannot_be_superseded_by_one_of_another_project(raw: RawWriter, rejected, verb: str, owner: str):
    """`superseded_by` must name a memory of the same project."""
    stranger = raw.insert("memory_items", team_id=owner[0], project_id=owner)

    with rejected:
        raw.insert("memory_items", verb=verb, **A1, superseded_by=stranger)


@pytest.mark.parametrize("verb", INSERTS)
@pytest.mark.parametrize("owner", ["a2", "b1"])
def test_source_belongs_to_the_project_of_its_memory(raw: RawWriter, rejected, verb: str, owner: str):
    """A source cannot be in another project than its memory."""
    stranger = raw.insert("memory_items", team_id=owner[0], project_id=owner)

    with rejected:
        raw.insert("memory_sources", verb=verb, **A1, memory_item_id=stranger)


@pytest.mark.parametrize("verb", INSERTS)
def test_key_belongs_to_a_member_of_its_team(raw: RawWriter, rejected, verb: str):
    """A key cannot name a member of another team."""
    raw.insert("team_members", team_id="b", user_id="u")

    with rejected:
        raw.insert("api_keys", verb=verb, team_id="a", user_id="u")


@pytest.mark.sqlite
@pytest.mark.parametrize("same", ["seq", "id", "content_hash"])
def test_memory_is_never_replaced(raw: RawWriter, rejected, same: str):
    """OR REPLACE would leave the old row's words in the index, because its delete triggers do not run."""
    raw.insert("memory_items", **A1, seq=7, id="m", content_hash="h", text="first")

    with rejected:
        raw.insert("memory_items", verb="INSERT OR REPLACE", **A1, **{same: {"seq": 7, "id": "m"}.get(same, "h")})

    assert raw.run("SELECT text FROM memory_items") == [("first",)]


@pytest.mark.sqlite
@pytest.mark.parametrize("change", ["seq = 8", "id = 'other'", "content_hash = 'other'"])
def test_update_does_not_replace_another_memory(raw: RawWriter, rejected, change: str):
    """UPDATE OR REPLACE cannot remove another row by taking its key."""
    raw.insert("memory_items", **A1, seq=7)
    raw.insert("memory_items", **A1, seq=8, id="other", content_hash="other")

    with rejected:
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
def test_parent_is_never_replaced(raw: RawWriter, rejected, table: str, same: dict[str, str]):
    """OR REPLACE cannot take a team, project or session away from its children."""
    raw.run("UPDATE teams SET slug = 's' WHERE id = 'a'")
    raw.run("UPDATE projects SET slug = 's', root_path = '/p' WHERE id = 'a1'")
    raw.run("UPDATE server_sessions SET external_session_id = 'e' WHERE id = 'session of a1'")
    before = raw.run(f"SELECT * FROM {table}")

    with rejected:
        raw.insert(table, verb="INSERT OR REPLACE", **same)

    assert raw.run(f"SELECT * FROM {table}") == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_log SET action = 'nothing'",
        "DELETE FROM audit_log",
        sqlite_only("UPDATE OR REPLACE audit_log SET id = 'other'"),
        sqlite_only(
            "INSERT OR REPLACE INTO audit_log SELECT seq, 'other', team_id, project_id, actor_id, user_id, 'nothing',"
            " target_type, target_id, outcome, count, request_id, created_at_epoch FROM audit_log"
        ),
    ],
)
def test_audit_log_is_append_only(raw: RawWriter, rejected, statement: str):
    """No entry is changed, replaced or deleted."""
    raw.insert("audit_log", id="entry", team_id="a")
    before = raw.run("SELECT * FROM audit_log")

    with rejected:
        raw.run(statement)

    assert raw.run("SELECT * FROM audit_log") == before


@pytest.mark.postgresql
def test_audit_log_cannot_be_truncated(raw: RawWriter):
    """TRUNCATE fires no row triggers, so the log has a trigger for it."""
    raw.insert("audit_log", id="entry", team_id="a")

    with pytest.raises((CheckViolation, InsufficientPrivilege)):
        raw.run("TRUNCATE audit_log")

    assert raw.run("SELECT id FROM audit_log") == [("entry",)]


def test_only_audit_entries_before_the_retention_limit_can_be_deleted(raw: RawWriter):
    """The only way to delete from the log is to set the limit first."""
    raw.insert("audit_log", id="old", created_at_epoch=1)
    raw.insert("audit_log", id="new", created_at_epoch=9)
    raw.run("INSERT INTO audit_retention VALUES (1, 5)")

    raw.run("DELETE FROM audit_log WHERE created_at_epoch < 5")

    assert raw.run("SELECT id FROM audit_log") == [("new",)]
