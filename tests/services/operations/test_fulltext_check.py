"""The server checks and repairs full text automatically: by cheap counts first, then word by word in small slices."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.errors import Conflict
from app.services.operations import fulltext_check
from app.services.operations.fulltext_check import FullTextRepairer
from app.store.database import Database
from app.store.maintenance import postgresql, sqlite, sqlite_rebuilding
from tests.databases import Databases
from tests.services.conftest import TeamProject
from tests.store import corruption, raw_writer
from tests.store.raw_writer import RawWriter

ROWS = 10
Damage = Callable[[RawWriter], None]


@pytest.fixture
def books(team_project: TeamProject, monkeypatch: pytest.MonkeyPatch) -> TeamProject:
    """A database with some memories, three of them to a slice."""
    monkeypatch.setattr(fulltext_check, "SLICE_ROWS", 3)
    for number in range(ROWS):
        team_project.remember(corruption.sample_text(number), title='„quoted“ "words" AND (more)', facts=["a\tb\\c"])
    return team_project


@pytest.fixture
def owned(books: TeamProject, databases: Databases, tmp_path: Path) -> Iterator[Database]:
    """The same database, opened as the owner of its tables."""
    with closing(Database(databases.owner_url(tmp_path))) as opened:
        yield opened


def damage_database(owned: Database, harm: Damage) -> None:
    with closing(raw_writer.connect(owned.url)) as raw:
        if harm is corruption.missed_rows:
            raw.insert("teams", id="a")
            raw.insert("projects", id="a1", team_id="a")
        harm(raw)


@pytest.mark.parametrize("harm", corruption.DETECTED_CHEAPLY)
def test_first_check_repairs_cheaply_detected_damage(owned: Database, harm: Damage):
    """Triggers, tokenizer, tables and counts are right afterwards."""
    damage_database(owned, harm)

    FullTextRepairer(owned).check()

    assert fulltext_check.faults(owned) == []


@pytest.mark.parametrize("harm", corruption.ROW_COUNTS_DIFFER)
def test_rows_are_repaired_without_the_owners_privileges(books: TeamProject, owned: Database, harm: Damage):
    """The server's own role can index memories again."""
    damage_database(owned, harm)

    FullTextRepairer(books.database).check()

    assert fulltext_check.faults(books.database) == []


@pytest.mark.postgresql
def test_repair_that_needs_the_owner_says_so(books: TeamProject, owned: Database):
    """Only the role that owns the tables can restore a trigger."""
    damage_database(owned, corruption.dropped_trigger)

    with pytest.raises(Conflict, match="CMEM_DATABASE_ADMIN_URL"):
        FullTextRepairer(books.database).check()


def test_changed_words_are_repaired_once_their_slice_is_checked(books: TeamProject, owned: Database):
    """Counts do not reveal them, so it takes a full round of slices."""
    repairer = FullTextRepairer(books.database)
    repairer.check()
    damage_database(owned, corruption.missed_changes)
    assert fulltext_check.faults(books.database) != []

    for _ in range(ROWS // 3 + 2):
        repairer.check()

    assert fulltext_check.faults(books.database) == []


def test_intact_index_is_left_alone(books: TeamProject, monkeypatch: pytest.MonkeyPatch):
    """There are no false alarms, whatever text the memories hold, in any round."""
    books.remember("日本語のメモ　です")
    books.remember("!!! --- ???", title="\N{ZERO WIDTH SPACE}", narrative="a" * 5000 + " b" * 5000)
    for dialect in (sqlite, postgresql):
        monkeypatch.setattr(dialect, "rebuild", lambda *_: pytest.fail("the index was intact"))
    repairer = FullTextRepairer(books.database)

    for _ in range(12):
        repairer.check()


def test_stopping_server_does_not_wait_for_a_rebuild(owned: Database, monkeypatch: pytest.MonkeyPatch):
    """It is abandoned after a slice, and done after the next start."""
    for dialect in (sqlite_rebuilding, postgresql):
        monkeypatch.setattr(dialect, "_SLICE_ROWS", 2)
    repairer = FullTextRepairer(owned)
    repairer.stop()
    damage_database(owned, corruption.emptied_index)
    repairer.check()
    assert fulltext_check.faults(owned) != []

    FullTextRepairer(owned).check()

    assert fulltext_check.faults(owned) == []


@pytest.mark.sqlite
def test_slow_slice_ends_early_and_is_followed_by_a_pause(team_project: TeamProject):
    """A word repeated 40,000 times makes one lookup slow: many of them must not keep a reader busy."""
    for number in range(20):
        team_project.remember("buffalo " * 40_000 + str(number))
    repairer = FullTextRepairer(team_project.database)
    started = time.monotonic()
    repairer.check()
    took = time.monotonic() - started
    seen = repairer._checked_up_to

    started = time.monotonic()
    repairer.check()

    assert 0 < seen < 20
    assert repairer._checked_up_to == seen
    assert time.monotonic() - started < took / 10
