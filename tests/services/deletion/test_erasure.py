"""Erasing a person leaves nothing of theirs, nothing of others' is touched, and the receipt tells the truth."""

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
    """Return a caller with a key of a member of the team."""
    with database.write() as connection:
        sql = "INSERT INTO team_members VALUES (:team, :user, 'owner', 0, 0) ON CONFLICT DO NOTHING"
        connection.execute(text(sql), {"team": owner.team_id, "user": name})
    make_key(database, owner, user_id=name, scopes=(EVERYTHING,), name=name)
    with database.read() as connection:
        key_id = connection.scalar(text("SELECT id FROM api_keys WHERE user_id = :user"), {"user": name})
    return Caller(team_id=owner.team_id, key_id=key_id, user_id=name, scopes=frozenset({EVERYTHING}))


def write(database: Database, who: Caller, project_id: str, word: str, platform: str = "claude") -> None:
    """Leave a session with an event and a memory, and a memory besides."""
    with database.write() as connection:
        start = sessions.Start(
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
    """A project in which ada and bob have written."""
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
def test_everything_of_a_person_goes_and_the_rest_stays(
    database: Database, owner: Caller, project: str, selector: Selector
):
    """By whatever points at them; a rehearsal counts the same."""
    rehearsed = erasure.erase(database, owner, selector, dry_run=True)
    receipt = erasure.erase(database, owner, selector, dry_run=False)

    assert (receipt.memories, receipt.events, receipt.sessions) == (2, 1, 1)
    assert (rehearsed.memories, rehearsed.events, rehearsed.sessions) == (2, 1, 1)
    assert (receipt.full_text, receipt.vectors, receipt.outbox) == (2, 2, 2)
    with database.read() as connection:
        for table in ("memory_items", "agent_events", "server_sessions"):
            rows = connection.exec_driver_sql(f"SELECT * FROM {table}").all()
            assert len(rows) == {"memory_items": 2, "agent_events": 1, "server_sessions": 1}[table]
            assert WORD not in str(rows)


def test_it_is_nowhere_after_maintenance(database: Database, owner: Caller, project: str):
    """In no file of SQLite's, in no row of PostgreSQL's."""
    erasure.erase(database, owner, Selector(actor="ada"), dry_run=False)
    maintenance.run(database)

    assert kept_in(database, WORD) == []


def test_another_teams_rows_stay(database: Database, owner: Caller, project: str):
    """The same platform elsewhere is somebody else's."""
    with database.write() as connection:
        other = server_owner().within(teams.create(connection, server_owner(), name="b").id)
        other_project = projects.create(connection, other, name="p").id
    write(database, other, other_project, "theirs", "codex")
    erasure.erase(database, owner, Selector(platform_source="codex"), dry_run=False)

    with database.read() as connection:
        sql = "SELECT count(*) FROM memory_items WHERE team_id = :team"
        assert connection.scalar(text(sql), {"team": other.team_id}) == 2


def test_an_erasure_is_on_record_without_saying_who(database: Database, owner: Caller, project: str):
    """The receipt's id, and how much."""
    receipt = erasure.erase(database, owner, Selector(actor="ada"), dry_run=False)

    with database.read() as connection:
        entries = connection.exec_driver_sql("SELECT target_id, count FROM audit_log WHERE action = 'person.erase'")
        assert entries.all() == [(receipt.id, 4)]


def test_it_needs_a_selector_and_the_right(database: Database, owner: Caller):
    """Without one everything would be meant."""
    with pytest.raises(Invalid):
        erasure.erase(database, owner, Selector(), dry_run=True)
    with pytest.raises(Forbidden):
        erasure.erase(database, Caller(team_id=owner.team_id), Selector(actor="ada"), dry_run=True)


def test_projects_are_not_touched(database: Database, owner: Caller, project: str):
    """A person's rows go, the team's projects stay."""
    erasure.erase(database, owner, Selector(actor="ada"), dry_run=False)

    with database.read() as connection:
        assert projects.get(connection, owner, project).id == project
