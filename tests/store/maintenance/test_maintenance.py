"""Drift of full text is found: what is installed at a glance, the rest by content."""

from collections.abc import Callable

import pytest

from app.store.database import Database
from app.store.maintenance import REBUILD, MaintenanceBackend, dialects
from tests.store import corruption
from tests.store.raw_writer import RawWriter

Damage = Callable[[RawWriter], None]


@pytest.fixture
def library(raw: RawWriter) -> RawWriter:
    """The writer, after it has written some memories."""
    for number in range(5):
        raw.insert("memory_items", team_id="a", project_id="a1", text=f"the {corruption.WORD} keeper number {number}")
    return raw


@pytest.fixture
def maintenance(database: Database) -> MaintenanceBackend:
    """Who looks after this dialect."""
    return dialects.of(database.dialect)


def in_step(database: Database) -> bool:
    with database.read() as connection:
        return dialects.of(database.dialect).is_full_text_plausible(connection)


def test_a_whole_database_has_no_faults(library: RawWriter, database: Database, maintenance: MaintenanceBackend):
    """Nothing is found where nothing is wrong."""
    assert (maintenance.faults(database), in_step(database)) == ([], True)


@pytest.mark.parametrize("harm", corruption.ANY)
def test_every_drift_is_a_fault_that_says_what_mends_it(
    library: RawWriter, database: Database, maintenance: MaintenanceBackend, harm: Damage
):
    """`db check` names the rebuild for whatever happened to full text."""
    harm(library)

    assert [fault for fault in maintenance.faults(database) if fault.endswith(REBUILD)] != []


@pytest.mark.parametrize("harm", corruption.DETECTED_CHEAPLY)
def test_what_needs_no_reading_of_content_is_seen_at_a_glance(library: RawWriter, database: Database, harm: Damage):
    """The check at start finds everything but changed words."""
    harm(library)

    assert not in_step(database)


@pytest.mark.parametrize("harm", corruption.DETECTED_BY_CONTENT)
def test_changed_words_are_found_by_content(
    library: RawWriter, database: Database, maintenance: MaintenanceBackend, harm: Damage
):
    """Equal counts do not hide that the index holds other words than the memories."""
    harm(library)

    assert (in_step(database), maintenance.is_full_text_intact(database)) == (True, False)


@pytest.mark.sqlite
def test_a_row_without_its_parent_is_a_fault(library: RawWriter, database: Database, maintenance: MaintenanceBackend):
    """What a writer with foreign keys off left alone is named."""
    library.run("DELETE FROM projects WHERE id = 'a1'")

    assert "memory_items row 1 has lost its parent in projects" in maintenance.faults(database)
