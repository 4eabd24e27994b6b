"""The server looks after full text by itself: at a glance first, word by word later, in small slices."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.errors import Conflict
from app.services.operations import fulltext_check
from app.services.operations.fulltext_check import Healing
from app.store.database import Database
from app.store.maintenance import postgresql, sqlite, sqlite_rebuilding
from tests.services.conftest import Place
from tests.store import damage, raw_writer
from tests.store.raw_writer import RawWriter
from tests.stores import Stores

ROWS = 10
Damage = Callable[[RawWriter], None]


@pytest.fixture
def books(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A database with some memories, three of them to a slice."""
    monkeypatch.setattr(fulltext_check, "SLICE_ROWS", 3)
    for number in range(ROWS):
        place.remember(
            f"the {damage.WORD} keeper number {number}", title='„quoted“ "words" AND (more)', facts=["a\tb\\c"]
        )
    return place


@pytest.fixture
def owned(books: Place, stores: Stores, tmp_path: Path) -> Iterator[Database]:
    """The same database with the rights of who owns its tables."""
    with closing(Database(stores.owner_url(tmp_path))) as opened:
        yield opened


def harmed(owned: Database, harm: Damage) -> None:
    with closing(raw_writer.opened(owned.url)) as raw:
        if harm is damage.missed_rows:
            raw.insert("teams", id="a")
            raw.insert("projects", id="a1", team_id="a")
        harm(raw)


@pytest.mark.parametrize("harm", damage.SEEN_AT_A_GLANCE)
def test_the_first_look_mends_what_is_seen_at_a_glance(owned: Database, harm: Damage):
    """Triggers, tokenizer, tables and counts are right after it."""
    harmed(owned, harm)

    Healing(owned).look()

    assert fulltext_check.faults(owned) == []


@pytest.mark.parametrize("harm", damage.ROWS_SEEN_AT_A_GLANCE)
def test_rows_are_mended_without_the_rights_of_the_owner(books: Place, owned: Database, harm: Damage):
    """A server mends by itself what words its memories are found by."""
    harmed(owned, harm)

    Healing(books.database).look()

    assert fulltext_check.faults(books.database) == []


@pytest.mark.postgresql
def test_a_server_that_may_not_mend_names_who_may(books: Place, owned: Database):
    """A trigger is put back by the role that owns the tables."""
    harmed(owned, damage.dropped_trigger)

    with pytest.raises(Conflict, match="CMEM_DATABASE_ADMIN_URL"):
        Healing(books.database).look()


def test_changed_words_are_mended_once_their_slice_is_looked_at(books: Place, owned: Database):
    """No count tells, so it takes a round of looks."""
    healing = Healing(books.database)
    healing.look()
    harmed(owned, damage.missed_changes)
    assert fulltext_check.faults(books.database) != []

    for _ in range(ROWS // 3 + 2):
        healing.look()

    assert fulltext_check.faults(books.database) == []


def test_a_whole_index_is_left_alone(books: Place, monkeypatch: pytest.MonkeyPatch):
    """Looking finds nothing where nothing is wrong, whatever the memories hold, round after round."""
    books.remember("日本語のメモ　です")
    books.remember("!!! --- ???", title="\N{ZERO WIDTH SPACE}", narrative="a" * 5000 + " b" * 5000)
    for dialect in (sqlite, postgresql):
        monkeypatch.setattr(dialect, "rebuild", lambda *_: pytest.fail("nothing was wrong"))
    healing = Healing(books.database)

    for _ in range(12):
        healing.look()


def test_a_stopping_server_does_not_wait_for_a_rebuild(owned: Database, monkeypatch: pytest.MonkeyPatch):
    """It is given up after a slice, and the next start mends."""
    for dialect in (sqlite_rebuilding, postgresql):
        monkeypatch.setattr(dialect, "_SLICE_ROWS", 2)
    healing = Healing(owned)
    healing.stop()
    harmed(owned, damage.emptied_index)
    healing.look()
    assert fulltext_check.faults(owned) != []

    Healing(owned).look()

    assert fulltext_check.faults(owned) == []


@pytest.mark.sqlite
def test_a_look_at_costly_memories_is_short_and_rests_afterwards(place: Place):
    """Tens of thousands of equal words make one lookup slow: many of them must not keep a reader busy."""
    for number in range(20):
        place.remember("buffalo " * 40_000 + str(number))
    healing = Healing(place.database)
    started = time.monotonic()
    healing.look()
    took = time.monotonic() - started
    seen = healing._looked_at

    started = time.monotonic()
    healing.look()

    assert 0 < seen < 20
    assert healing._looked_at == seen
    assert time.monotonic() - started < took / 10
