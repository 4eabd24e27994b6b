"""Values of old rows that PostgreSQL cannot store are replaced or left out, and always reported."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import select, text

from app.store import models
from app.store.database import Database
from tests.services.backup.copies import contents, copied, copy, outbox
from tests.store.raw_writer import RawWriter


@pytest.fixture
def raw(database: Database) -> Iterator[RawWriter]:
    """Another program that writes to the source, which has a team, a project and a session."""
    with closing(RawWriter(database.path)) as writer:
        writer.insert("teams", id="t")
        writer.insert("projects", id="p", team_id="t")
        writer.insert("server_sessions", id="s", team_id="t", project_id="p")
        yield writer


@pytest.mark.sqlite
def test_values_that_postgresql_cannot_store_are_replaced_and_reported(
    database: Database, raw: RawWriter, target: Database
):
    """NUL, invalid UTF-8, text in an integer column: the row is copied, and the report lists it."""
    place = {"team_id": "t", "project_id": "p"}
    raw.insert("memory_items", **place, id="nul", text="be\0fore", superseded_by=None)
    raw.insert("memory_items", **place, id="surrogate")
    raw.run("UPDATE memory_items SET title = CAST(x'61EDA08062' AS TEXT) WHERE id = 'surrogate'")
    raw.insert("agent_events", **place, id="number", occurred_at_epoch="yesterday", payload='{"a": "\0"}')
    raw.insert("memory_items", **place, id="fine", text="fine")
    raw.run("DELETE FROM vector_outbox")

    report = copy(database, target, "keep")

    assert [(row.table, row.key[-1], row.columns) for row in report.replaced] == [
        ("agent_events", "number", ["payload", "occurred_at_epoch"]),
        ("memory_items", "1", ["text"]),
        ("memory_items", "2", ["title"]),
    ]
    assert (report.ok, report.replaced_rows) == (True, 3)
    item = models.memory_items.c
    with target.read() as connection:
        assert connection.execute(select(item.text, item.title).order_by(item.seq)).all() == [
            ("be\ufffdfore", None),
            (None, "a\ufffd\ufffd\ufffdb"),
            ("fine", None),
        ]
    assert [memory_id for memory_id, *_ in outbox(target)] == ["nul", "surrogate"], "their vectors are of other texts"


@pytest.mark.sqlite
def test_damaged_json_is_copied_as_it_is(database: Database, raw: RawWriter, target: Database):
    """It is stored as text; reading it gives the empty value, as before."""
    raw.insert("memory_items", team_id="t", project_id="p", facts='["cut of', metadata="", concepts='["\\u0000"]')

    report = copy(database, target)

    with target.read() as connection:
        kept = connection.execute(text("SELECT facts, metadata, concepts FROM memory_items")).one()
    assert tuple(kept) == ('["cut of', "", '["\\u0000"]')
    assert (report.ok, report.replaced_rows) == (True, 0)


@pytest.mark.sqlite
def test_rejected_row_is_reported_and_the_others_are_copied(database: Database, raw: RawWriter, target: Database):
    """A parent was deleted while foreign keys were off: the copy continues, but does not count as complete."""
    for number in range(20):
        raw.insert("agent_events", id=f"event-{number:02}", team_id="t", project_id="p")
    raw.insert("projects", id="gone", team_id="t")
    raw.insert("agent_events", id="event-07b", team_id="t", project_id="gone")
    raw.run("DELETE FROM projects WHERE id = 'gone'")

    report = copy(database, target)

    assert [line.split(":")[0] for line in report.refused] == ["agent_events event-07b"]
    assert [name for name, table in report.tables.items() if not table.same] == ["agent_events"]
    assert not report.ok
    assert copied(report)["agent_events"] == len(contents(target)["agent_events"]) == 20


@pytest.mark.sqlite
def test_memory_may_be_superseded_by_a_later_one_or_by_itself(database: Database, raw: RawWriter, target: Database):
    """References within a table are set once all rows are there, or they would be rejected row by row."""
    for memory_id in ("old", "new", "own"):
        raw.insert("memory_items", id=memory_id, team_id="t", project_id="p")
    raw.run("UPDATE memory_items SET superseded_by = 'new' WHERE id = 'old'")
    raw.run("UPDATE memory_items SET superseded_by = 'own' WHERE id = 'own'")

    assert copy(database, target).ok
    assert contents(target) == contents(database)
