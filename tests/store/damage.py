"""Ways in which full text gets out of step with the memories, as they happen outside."""

from typing import Final

import pytest

from tests.store.raw_writer import RawWriter

WORD: Final = "lighthouse"
_INSERT_TRIGGER: Final = "trg_memory_items_fts_insert"
_UPDATE_TRIGGER: Final = "trg_memory_items_fts_update"


def dropped_trigger(raw: RawWriter) -> None:
    """Somebody's migration rebuilt the table and lost a trigger."""
    raw.drop_trigger(_UPDATE_TRIGGER)


def altered_trigger(raw: RawWriter) -> None:
    """A trigger of the same name does something else."""
    raw.drop_trigger(_INSERT_TRIGGER)
    raw.add_idle_trigger(_INSERT_TRIGGER, "INSERT")


def foreign_trigger(raw: RawWriter) -> None:
    """A trigger that nobody knows writes into the index."""
    raw.add_idle_trigger("strange", "UPDATE")


def missed_rows(raw: RawWriter) -> None:
    """Rows were written while the trigger was away."""
    with raw.without_trigger(_INSERT_TRIGGER):
        raw.insert("memory_items", team_id="a", project_id="a1", text="written behind its back")


def missed_changes(raw: RawWriter) -> None:
    """A row was changed, word for word, while the trigger was away: no count tells."""
    with raw.without_trigger(_UPDATE_TRIGGER):
        raw.run("UPDATE memory_items SET text = replace(text, 'keeper', 'sleeper')")


def other_tokenizer(raw: RawWriter) -> None:
    """The table was made anew with another tokenizer."""
    sql = str(raw.run("SELECT sql FROM sqlite_master WHERE name = 'memory_items_fts'")[0][0])
    raw.run("DROP TABLE memory_items_fts")
    raw.run(sql.replace("porter unicode61 remove_diacritics 2", "trigram"))
    raw.run("INSERT INTO memory_items_fts(memory_items_fts) VALUES ('rebuild')")


def dropped_table(raw: RawWriter) -> None:
    """The table is gone."""
    raw.run("DROP TABLE memory_items_fts")


def deleted_index(raw: RawWriter) -> None:
    """The rows of the shadow table with the index are gone."""
    raw.run("DELETE FROM memory_items_fts_data")


def orphaned_shadows(raw: RawWriter) -> None:
    """The virtual table is gone from the schema, its shadow tables stayed."""
    raw.run("PRAGMA writable_schema = ON")
    raw.run("DELETE FROM sqlite_master WHERE name = 'memory_items_fts'")
    raw.run("PRAGMA writable_schema = RESET")


def missing_shadow(raw: RawWriter) -> None:
    """A shadow table is gone."""
    raw.run("DROP TABLE memory_items_fts_docsize")


def other_words(raw: RawWriter) -> None:
    """The function that makes words makes others."""
    raw.run("CREATE OR REPLACE FUNCTION cmem_folded(body text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT body'")


def disabled_trigger(raw: RawWriter) -> None:
    """A trigger is there and sleeps, as some programs that copy data leave it."""
    raw.run(f"ALTER TABLE memory_items DISABLE TRIGGER {_UPDATE_TRIGGER}")


def dropped_index(raw: RawWriter) -> None:
    """Searches would read every row of every team."""
    raw.run("DROP INDEX ix_memory_items_fts_own")


def emptied_index(raw: RawWriter) -> None:
    """Every word is gone."""
    raw.empty_full_text()


def lost_part(raw: RawWriter) -> None:
    """One memory is indexed no more."""
    raw.run("DELETE FROM memory_items_fts WHERE seq = (SELECT max(seq) FROM memory_items)")


def fallen_wall(raw: RawWriter) -> None:
    """Row-level security is switched off."""
    raw.run("ALTER TABLE memory_items_fts DISABLE ROW LEVEL SECURITY")


_SQLITE: Final = (other_tokenizer, dropped_table, deleted_index, orphaned_shadows, missing_shadow)
_OBJECTS_OF_POSTGRESQL: Final = (other_words, disabled_trigger, dropped_index, fallen_wall)

ROWS_SEEN_AT_A_GLANCE: Final = [
    missed_rows,
    emptied_index,
    pytest.param(lost_part, marks=pytest.mark.postgresql),
]
SEEN_AT_A_GLANCE: Final = [
    dropped_trigger,
    altered_trigger,
    foreign_trigger,
    *(pytest.param(harm, marks=pytest.mark.sqlite) for harm in _SQLITE),
    *(pytest.param(harm, marks=pytest.mark.postgresql) for harm in _OBJECTS_OF_POSTGRESQL),
    *ROWS_SEEN_AT_A_GLANCE,
]
SEEN_BY_CONTENT: Final = [missed_changes]
ANY: Final = [*SEEN_AT_A_GLANCE, *SEEN_BY_CONTENT]
