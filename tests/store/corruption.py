"""Ways in which other programs corrupt full text: each function does one kind of damage."""

from typing import Final

import pytest

from tests.store.raw_writer import RawWriter

WORD: Final = "lighthouse"
_REPLACED: Final = "keeper"
_INSERT_TRIGGER: Final = "trg_memory_items_fts_insert"
_UPDATE_TRIGGER: Final = "trg_memory_items_fts_update"


def sample_text(number: int) -> str:
    """Return a text that contains WORD, and a word that `missed_changes` replaces."""
    return f"the {WORD} {_REPLACED} number {number}"


def dropped_trigger(raw: RawWriter) -> None:
    """A trigger is missing, as after another program rebuilt the table."""
    raw.drop_trigger(_UPDATE_TRIGGER)


def altered_trigger(raw: RawWriter) -> None:
    """A trigger of the same name does something else."""
    raw.drop_trigger(_INSERT_TRIGGER)
    raw.add_idle_trigger(_INSERT_TRIGGER, "INSERT")


def foreign_trigger(raw: RawWriter) -> None:
    """There is a trigger that no migration installed."""
    raw.add_idle_trigger("strange", "UPDATE")


def missed_rows(raw: RawWriter) -> None:
    """Rows were written while the trigger was disabled."""
    with raw.without_trigger(_INSERT_TRIGGER):
        raw.insert("memory_items", team_id="a", project_id="a1", text="written without the trigger")


def missed_changes(raw: RawWriter) -> None:
    """A row was changed word for word while the trigger was disabled, so that no count differs."""
    with raw.without_trigger(_UPDATE_TRIGGER):
        raw.run("UPDATE memory_items SET text = replace(text, ?, 'sleeper')", _REPLACED)
    assert raw.run("SELECT count(*) FROM memory_items WHERE text LIKE ?", "%sleeper%") != [(0,)]


def other_tokenizer(raw: RawWriter) -> None:
    """The table was recreated with another tokenizer."""
    sql = str(raw.run("SELECT sql FROM sqlite_master WHERE name = 'memory_items_fts'")[0][0])
    raw.run("DROP TABLE memory_items_fts")
    raw.run(sql.replace("porter unicode61 remove_diacritics 2", "trigram"))
    raw.run("INSERT INTO memory_items_fts(memory_items_fts) VALUES ('rebuild')")


def dropped_table(raw: RawWriter) -> None:
    """The table was dropped."""
    raw.run("DROP TABLE memory_items_fts")


def deleted_index(raw: RawWriter) -> None:
    """The rows of the shadow table with the index were deleted."""
    raw.run("DELETE FROM memory_items_fts_data")


def orphaned_shadows(raw: RawWriter) -> None:
    """The virtual table was deleted from the schema, but not its shadow tables."""
    raw.run("PRAGMA writable_schema = ON")
    raw.run("DELETE FROM sqlite_master WHERE name = 'memory_items_fts'")
    raw.run("PRAGMA writable_schema = RESET")


def missing_shadow(raw: RawWriter) -> None:
    """A shadow table was dropped."""
    raw.run("DROP TABLE memory_items_fts_docsize")


def other_words(raw: RawWriter) -> None:
    """The function that splits text into words was replaced."""
    raw.run("CREATE OR REPLACE FUNCTION cmem_folded(body text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT body'")


def disabled_trigger(raw: RawWriter) -> None:
    """A trigger is disabled, as some programs that copy data leave it."""
    raw.run(f"ALTER TABLE memory_items DISABLE TRIGGER {_UPDATE_TRIGGER}")


def dropped_index(raw: RawWriter) -> None:
    """The index was dropped: searches would read every row of every team."""
    raw.run("DROP INDEX ix_memory_items_fts_own")


def emptied_index(raw: RawWriter) -> None:
    """All words were deleted."""
    raw.empty_full_text()


def lost_part(raw: RawWriter) -> None:
    """One memory is no longer indexed."""
    raw.run("DELETE FROM memory_items_fts WHERE seq = (SELECT max(seq) FROM memory_items)")


def disabled_row_security(raw: RawWriter) -> None:
    """Row-level security is disabled."""
    raw.run("ALTER TABLE memory_items_fts DISABLE ROW LEVEL SECURITY")


_SQLITE: Final = (other_tokenizer, dropped_table, deleted_index, orphaned_shadows, missing_shadow)
_OBJECTS_OF_POSTGRESQL: Final = (other_words, disabled_trigger, dropped_index, disabled_row_security)

ROW_COUNTS_DIFFER: Final = [
    missed_rows,
    emptied_index,
    pytest.param(lost_part, marks=pytest.mark.postgresql),
]
DETECTED_CHEAPLY: Final = [
    dropped_trigger,
    altered_trigger,
    foreign_trigger,
    *(pytest.param(corrupt, marks=pytest.mark.sqlite) for corrupt in _SQLITE),
    *(pytest.param(corrupt, marks=pytest.mark.postgresql) for corrupt in _OBJECTS_OF_POSTGRESQL),
    *ROW_COUNTS_DIFFER,
]
DETECTED_BY_CONTENT: Final = [missed_changes]
ANY: Final = [*DETECTED_CHEAPLY, *DETECTED_BY_CONTENT]
