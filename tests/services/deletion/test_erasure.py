"""Erasing a person deletes everything of theirs and nothing of others, and the receipt is accurate."""

import pytest
from sqlalchemy import text

from app.caller import EVERYTHING, Caller, server_owner
from app.errors import Forbidden, Invalid
from app.services.deletion import erasure
from app.services.deletion.erasure import Selector
from app.services.identity import teams
from app.services.memories import memories
from app.services.operations import maintenance
from app.services.projects import events, projects, sessions
from app.store.database import Database
from tests.conftest import make_key
from tests.services.operations.test_maintenance import kept_in

WORD = "confidentialword"


@pytest.fixture
def owner(database: Database) -> Caller:
    with database.write() as connection:
        return server_owner().within(teams.create(connection, server_owner(), name="a").id)


def person(database: Database, owner: Caller, name: str) -> Caller:
    """Return a caller with the key of a new team member."""
    with database.write() as connection:
        sql = "INSERT INTO team_members VALUES (:team, :user, 'owner', 0, 0) ON CONFLICT DO NOTHING"
        connection.execute(text(sql), {"team": owner.team_id, "user": name})
    make_key(database, owner, user_id=name, scopes=(EVERYTHING,), name=name)
    with database.read() as connection:
        key_id = connection.scalar(text("SELECT id FROM api_keys WHERE user_id = :user"), {"user": name})
    return Caller(team_id=owner.team_id, key_id=key_id, user_id=name, scopes=frozenset({EVERYTHING}))


def write(database: Database, who: Caller, project_id: str, word: str, platform: str = "claude") -> None:
    """Store a session with an event and a memory, and another memory without a session."""
    with database.write() as connection:
        start = sessions.NewSession(
            project_id=project_id,
            external_session_id=word,
            platform_source=platform,
            metadata={"person": word},
            title=word,
        )
        session, _ = sessions.start(connection, who, start)
        for session_id in (session.id, None):
            new = memories.NewMemory(
                project_id=project_id,
                kind="manual",
                type="manual",
                text=word,
                server_session_id=session_id,
                platform_source=platform,
                metadata={"person": word},
            )
            memories.add(connection, who, new)
        event = events.NewEvent(
            project_id=project_id,
            source_type="hook",
            event_type="e",
            occurred_at_epoch=1,
            server_session_id=session.id,
            payload={"text": word},
            platform_source=platform,
        )
        events.add(connection, who, event)


@pytest.fixture
def project(database: Database, owner: Caller) -> str:
    """A project with rows of ada and bob."""
    with database.write() as connection:
        project_id = projects.create(connection, owner, name="p").id
    for name, word, platform in (("ada", WORD, "codex"), ("bob", "harmless", "claude")):
        write(database, person(database, owner, name), project_id, word, platform)
    return project_id


SELECTORS = [
    Selector(actor="ada"),
    Selector(platform_source="Codex CLI"),
    Selector(metadata={"person": WORD}),
    Selector(actor="ada", platform_source="codex", metadata={"person": WORD}),
]


@pytest.mark.parametrize("selector", SELECTORS)
def test_erasure_deletes_everything_of_a_person_and_nothing_else(
    database: Database, owner: Caller, project: str, selector: Selector
):
    """Whichever selector finds them; a dry run counts the same."""
    dry_run = erasure.erase(database, owner, selector, dry_run=True)
    receipt = erasure.erase(database, owner, selector, dry_run=False)

    assert (receipt.memories, receipt.events, receipt.sessions) == (2, 1, 1)
    assert (dry_run.memories, dry_run.events, dry_run.sessions) == (2, 1, 1)
    assert (receipt.full_text, receipt.vectors, receipt.outbox) == (2, 2, 2)
    with database.read() as connection:
        for table in ("memory_items", "agent_events", "server_sessions"):
            rows = connection.exec_driver_sql(f"SELECT * FROM {table}").all()
            assert len(rows) == {"memory_items": 2, "agent_events": 1, "server_sessions": 1}[table]
            assert WORD not in str(rows)


def test_no_trace_remains_after_maintenance(database: Database, owner: Caller, project: str):
    """In no file of SQLite and no row of PostgreSQL."""
    erasure.erase(database, owner, Selector(actor="ada"), dry_run=False)
    maintenance.run(database)

    assert kept_in(database, WORD) == []


def test_rows_of_other_teams_are_kept(database: Database, owner: Caller, project: str):
    """Even with the same platform."""
    with database.write() as connection:
        other = server_owner().within(teams.create(connection, server_owner(), name="b").id)
        other_project = projects.create(connection, other, name="p").id
    write(database, other, other_project, "theirs", "codex")
    erasure.erase(database, owner, Selector(platform_source="codex"), dry_run=False)

    with database.read() as connection:
        sql = "SELECT count(*) FROM memory_items WHERE team_id = :team"
        assert connection.scalar(text(sql), {"team": other.team_id}) == 2


def test_erasure_is_audited_without_naming_the_person(database: Database, owner: Caller, project: str):
    """The entry has the id of the receipt and a count."""
    receipt = erasure.erase(database, owner, Selector(actor="ada"), dry_run=False)

    with database.read() as connection:
        entries = connection.exec_driver_sql("SELECT target_id, count FROM audit_log WHERE action = 'person.erase'")
        assert entries.all() == [(receipt.id, 4)]


def test_erasure_requires_a_selector_and_team_admin(database: Database, owner: Caller):
    """Without a selector everything would match."""
    with pytest.raises(Invalid):
        erasure.erase(database, owner, Selector(), dry_run=True)
    with pytest.raises(Forbidden):
        erasure.erase(database, Caller(team_id=owner.team_id), Selector(actor="ada"), dry_run=True)


def test_projects_are_kept(database: Database, owner: Caller, project: str):
    """Only the person's rows are deleted."""
    erasure.erase(database, owner, Selector(actor="ada"), dry_run=False)

    with database.read() as connection:
        assert projects.get(connection, owner, project).id == project
