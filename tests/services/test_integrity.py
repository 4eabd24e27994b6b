"""The server looks after full text by itself: at a glance first, word by word later, in small slices."""

from collections.abc import Callable
from contextlib import closing

import pytest

from app.services import integrity
from app.services.integrity import Healing
from app.store.fulltext import rebuilding
from tests.services.conftest import Place
from tests.store import damage
from tests.store.raw_writer import RawWriter

ROWS = 10


@pytest.fixture
def healing(place: Place, monkeypatch: pytest.MonkeyPatch) -> Healing:
    """The caretaker of a database with some memories, three of them to a slice."""
    monkeypatch.setattr(integrity, "SLICE_ROWS", 3)
    for number in range(ROWS):
        place.remember(
            f"the {damage.WORD} keeper number {number}", title='„quoted“ "words" AND (more)', facts=["a\tb\\c"]
        )
    return Healing(place.database)


def harmed(place: Place, harm: Callable[[RawWriter], None]) -> None:
    with closing(RawWriter(place.database.path)) as raw:
        if harm is damage.missed_rows:
            raw.insert("teams", id="a")
            raw.insert("projects", id="a1", team_id="a")
        harm(raw)


@pytest.mark.parametrize("harm", damage.SEEN_AT_A_GLANCE)
def test_the_first_look_mends_what_is_seen_at_a_glance(
    place: Place, healing: Healing, harm: Callable[[RawWriter], None]
):
    """Triggers, tokenizer, tables and counts are right after it."""
    harmed(place, harm)

    healing.look()

    assert integrity.faults(place.database) == []


def test_changed_words_are_mended_once_their_slice_is_looked_at(place: Place, healing: Healing):
    """No count tells, so it takes a round of looks."""
    healing.look()
    harmed(place, damage.missed_changes)
    assert integrity.faults(place.database) != []

    for _ in range(ROWS // 3 + 2):
        healing.look()

    assert integrity.faults(place.database) == []


def test_a_whole_index_is_left_alone(place: Place, healing: Healing, monkeypatch: pytest.MonkeyPatch):
    """Looking finds nothing where nothing is wrong, whatever the memories hold, round after round."""
    place.remember("日本語のメモ　です")
    place.remember("!!! --- ???", title="\N{ZERO WIDTH SPACE}", narrative="a" * 5000 + " b" * 5000)
    monkeypatch.setattr(rebuilding, "rebuild", lambda *_: pytest.fail("nothing was wrong"))

    for _ in range(12):
        healing.look()


def test_a_stopping_server_does_not_wait_for_a_rebuild(place: Place, healing: Healing, monkeypatch: pytest.MonkeyPatch):
    """It is given up after a slice, and the next start mends."""
    monkeypatch.setattr(rebuilding, "_SLICE_ROWS", 2)
    harmed(place, damage.dropped_trigger)
    healing.stop()
    healing.look()
    assert integrity.faults(place.database) != []

    Healing(place.database).look()

    assert integrity.faults(place.database) == []
