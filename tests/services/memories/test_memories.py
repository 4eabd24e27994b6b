"""Identity of memories, required scopes, and full text after changes."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.caller import MEMORIES_READ, MEMORIES_WRITE, Caller
from app.errors import Forbidden
from app.services.memories import memories
from app.services.memories.memories import content_hash
from app.store.fulltext import SearchScope, dialects
from app.store.maintenance import dialects as maintenance
from tests.services.conftest import TeamProject

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
FIELD = st.one_of(TEXT, st.lists(TEXT, min_size=1, max_size=4))


@given(
    st.lists(st.one_of(st.none(), FIELD), min_size=2, max_size=6),
    st.lists(st.one_of(st.none(), FIELD), min_size=2, max_size=6),
)
def test_different_fields_have_different_hashes(first: list, second: list):
    """Only equal lists of fields have equal hashes: content cannot imitate a field boundary."""

    def plain(fields: list) -> list:
        parts = [[each] if isinstance(each, str) else each or [] for each in fields]
        return [[unicodedata.normalize("NFC", part) for part in field] for field in parts]

    assert (content_hash(first) == content_hash(second)) == (plain(first) == plain(second))


@given(TEXT, st.integers(0, 8))
def test_moving_a_field_boundary_changes_the_hash(text: str, index: int):
    """("ab", "c") is not ("a", "bc")."""
    left, right = unicodedata.normalize("NFC", text[:index]), unicodedata.normalize("NFC", text[index:])
    if left and right:
        assert content_hash([left, right]) != content_hash([left + right, None])


@given(TEXT)
def test_normal_forms_of_a_text_have_one_hash(text: str):
    """NFC and NFD are the same content."""
    forms = {content_hash([unicodedata.normalize(form, text)]) for form in ("NFC", "NFD")}

    assert len(forms) == 1


@pytest.mark.parametrize("empty", [None, "", []])
def test_empty_values_have_one_hash(empty):
    """Null, an empty string and an empty list are the same."""
    assert content_hash(["a", empty]) == content_hash(["a", None])


@pytest.mark.parametrize(("session_id", "locks"), [(None, ()), ("s1", ("session s1",))])
def test_only_inserts_into_the_same_session_share_a_lock(session_id: str | None, locks: tuple[str, ...]):
    """They update each other's context text; memories without a session are inserted concurrently."""
    assert memories.locks_for_insert(session_id) == locks


def test_writing_needs_memories_write(team_project: TeamProject):
    """A reader cannot store, change or remove memories."""
    memory = team_project.remember("x")
    reader = Caller(team_id=team_project.caller.team_id, scopes=frozenset({MEMORIES_READ}))
    new = memories.NewMemory(project_id=team_project.project_id, kind="manual", type="manual", text="y")

    for act in (
        lambda connection: memories.add(connection, reader, new),
        lambda connection: memories.change(connection, reader, memory.id, {"text": "z"}, precondition=lambda _: True),
        lambda connection: memories.remove(connection, reader, memory.id, precondition=lambda _: True),
    ):
        with pytest.raises(Forbidden, match=MEMORIES_WRITE), team_project.database.write() as connection:
            act(connection)


def test_memories_are_returned_in_the_order_of_the_ids(team_project: TeamProject):
    """Ids outside the caller's scope are left out."""
    first, second = team_project.remember("a"), team_project.remember("b")
    with team_project.database.read() as connection:
        rows = memories.by_ids(connection, team_project.caller, [second.id, "nobody's", first.id])

    assert [memory.id for memory in rows] == [second.id, first.id]


def test_changed_words_are_no_longer_found(team_project: TeamProject):
    """After a hundred changes of a row, the index has one entry with the last words only."""
    memory = team_project.remember("word0")
    for number in range(1, 101):
        with team_project.database.write() as connection:
            changes = {"text": f"word{number}"}
            memories.change(connection, team_project.caller, memory.id, changes, precondition=lambda _: True)

    full_text, scope = (
        dialects.of(team_project.database.dialect),
        SearchScope(team_project.caller.team_id, (team_project.project_id,)),
    )
    with team_project.database.read() as connection:
        counts = [len(full_text.find(connection, scope, (((f"word{number}",),),), limit=9)) for number in range(101)]
    assert counts == [0] * 100 + [1]
    assert maintenance.of(team_project.database.dialect).is_full_text_intact(team_project.database)
