"""Corruption of full text is detected: most kinds by cheap checks, the rest by comparing content."""

from collections.abc import Callable

import pytest

from app.store.database import Database
from app.store.maintenance import REBUILD, MaintenanceBackend, dialects
from tests.store import corruption
from tests.store.raw_writer import RawWriter

Damage = Callable[[RawWriter], None]


@pytest.fixture
def library(raw: RawWriter) -> RawWriter:
    """The raw writer, after it has written some memories."""
    for number in range(5):
        raw.insert("memory_items", team_id="a", project_id="a1", text=corruption.sample_text(number))
    return raw


@pytest.fixture
def maintenance(database: Database) -> MaintenanceBackend:
    """The maintenance module of the dialect."""
    return dialects.of(database.dialect)


def is_plausible(database: Database) -> bool:
    with database.read() as connection:
        return dialects.of(database.dialect).is_full_text_plausible(connection)


def test_intact_database_has_no_faults(library: RawWriter, database: Database, maintenance: MaintenanceBackend):
    """There are no false alarms."""
    assert (maintenance.faults(database), is_plausible(database)) == ([], True)


@pytest.mark.parametrize("corrupt", corruption.ANY)
def test_every_corruption_is_a_fault_with_its_remedy(
    library: RawWriter, database: Database, maintenance: MaintenanceBackend, corrupt: Damage
):
    """`db check` recommends a rebuild for any damage to full text."""
    corrupt(library)

    assert [fault for fault in maintenance.faults(database) if fault.endswith(REBUILD)] != []


@pytest.mark.parametrize("corrupt", corruption.DETECTED_CHEAPLY)
def test_cheap_check_detects_most_corruptions(library: RawWriter, database: Database, corrupt: Damage):
    """Everything except changed words."""
    corrupt(library)

    assert not is_plausible(database)


@pytest.mark.parametrize("corrupt", corruption.DETECTED_BY_CONTENT)
def test_changed_words_are_detected_by_content(
    library: RawWriter, database: Database, maintenance: MaintenanceBackend, corrupt: Damage
):
    """Although the counts are equal."""
    corrupt(library)

    assert (is_plausible(database), maintenance.is_full_text_intact(database)) == (True, False)


@pytest.mark.sqlite
def test_orphaned_row_is_a_fault(library: RawWriter, database: Database, maintenance: MaintenanceBackend):
    """As left behind by a client with foreign keys off."""
    library.run("DELETE FROM projects WHERE id = 'a1'")

    assert "memory_items row 1 has lost its parent in projects" in maintenance.faults(database)
