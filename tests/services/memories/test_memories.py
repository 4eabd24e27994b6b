"""What makes two memories the same, and what a writer must be allowed to do."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.caller import MEMORIES_READ, MEMORIES_WRITE, Caller
from app.errors import Forbidden
from app.services.memories import memories
from app.services.memories.memories import content_hash
from app.store.fulltext import Scope, dialects
from app.store.maintenance import dialects as care
from tests.services.conftest import Place

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
FIELD = st.one_of(TEXT, st.lists(TEXT, min_size=1, max_size=4))


@given(
    st.lists(st.one_of(st.none(), FIELD), min_size=2, max_size=6),
    st.lists(st.one_of(st.none(), FIELD), min_size=2, max_size=6),
)
def test_different_fields_have_different_hashes(first: list, second: list):
    """Only equal lists of fields agree: where a field ends cannot be confused with what it holds."""

    def plain(fields: list) -> list:
        parts = [[each] if isinstance(each, str) else each or [] for each in fields]
        return [[unicodedata.normalize("NFC", part) for part in field] for field in parts]

    assert (content_hash(first) == content_hash(second)) == (plain(first) == plain(second))


@given(TEXT, st.integers(0, 8))
def test_moving_a_boundary_changes_the_hash(text: str, place: int):
    """("ab", "c") is not ("a", "bc")."""
    left, right = unicodedata.normalize("NFC", text[:place]), unicodedata.normalize("NFC", text[place:])
    if left and right:
        assert content_hash([left, right]) != content_hash([left + right, None])


@given(TEXT)
def test_normal_forms_of_a_text_have_one_hash(text: str):
    """NFC and NFD are the same content."""
    forms = {content_hash([unicodedata.normalize(form, text)]) for form in ("NFC", "NFD")}

    assert len(forms) == 1


@pytest.mark.parametrize("nothing", [None, "", []])
def test_nothing_is_nothing_however_it_is_written(nothing):
    """A field that is absent, null, empty or an empty list counts the same."""
    assert content_hash(["a", nothing]) == content_hash(["a", None])


def test_writing_needs_its_scope(place: Place):
    """Whoever may only read stores, changes and removes nothing."""
    memory = place.remember("x")
    reader = Caller(team_id=place.caller.team_id, scopes=frozenset({MEMORIES_READ}))
    new = memories.NewMemory(project_id=place.project_id, kind="manual", type="manual", text="y")

    for act in (
        lambda connection: memories.add(connection, reader, new),
        lambda connection: memories.change(connection, reader, memory.id, {"text": "z"}, precondition=lambda _: True),
        lambda connection: memories.remove(connection, reader, memory.id, precondition=lambda _: True),
    ):
        with pytest.raises(Forbidden, match=MEMORIES_WRITE), place.database.write() as connection:
            act(connection)


def test_memories_of_several_ids_come_in_the_order_of_the_ids(place: Place):
    """What the caller does not reach is left out."""
    first, second = place.remember("a"), place.remember("b")
    with place.database.read() as connection:
        found = memories.by_ids(connection, place.caller, [second.id, "nobody's", first.id])

    assert [memory.id for memory in found] == [second.id, first.id]


def test_a_raw_change_makes_old_words_unfindable(place: Place):
    """After a hundred changes of a row there is one entry, and it holds the last words only."""
    memory = place.remember("word0")
    for number in range(1, 101):
        with place.database.write() as connection:
            changes = {"text": f"word{number}"}
            memories.change(connection, place.caller, memory.id, changes, precondition=lambda _: True)

    full_text, scope = dialects.of(place.database.dialect), Scope(place.caller.team_id, (place.project_id,))
    with place.database.read() as connection:
        found = [len(full_text.find(connection, scope, (((f"word{number}",),),), limit=9)) for number in range(101)]
    assert found == [0] * 100 + [1]
    assert care.of(place.database.dialect).is_full_text_whole(place.database)
