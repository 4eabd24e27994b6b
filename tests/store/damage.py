"""Ways in which full text gets out of step with the memories, as they happen outside."""

from collections.abc import Callable
from typing import Final

from tests.store.raw_writer import RawWriter

WORD: Final = "lighthouse"
_INSERT_TRIGGER: Final = "trg_memory_items_fts_insert"
_UPDATE_TRIGGER: Final = "trg_memory_items_fts_update"


def _sql_of(raw: RawWriter, name: str) -> str:
    return str(raw.run("SELECT sql FROM sqlite_master WHERE name = ?", name)[0][0])


def dropped_trigger(raw: RawWriter) -> None:
    """Somebody's migration rebuilt the table and lost a trigger."""
    raw.run(f"DROP TRIGGER {_UPDATE_TRIGGER}")


def altered_trigger(raw: RawWriter) -> None:
    """A trigger of the same name does something else."""
    raw.run(f"DROP TRIGGER {_INSERT_TRIGGER}")
    raw.run(f"CREATE TRIGGER {_INSERT_TRIGGER} AFTER INSERT ON memory_items BEGIN SELECT 1; END")


def foreign_trigger(raw: RawWriter) -> None:
    """A trigger that nobody knows writes into the index."""
    raw.run("CREATE TRIGGER strange AFTER UPDATE ON memory_items BEGIN SELECT 1; END")


def other_tokenizer(raw: RawWriter) -> None:
    """The table was made anew with another tokenizer."""
    sql = _sql_of(raw, "memory_items_fts").replace("porter unicode61 remove_diacritics 2", "trigram")
    raw.run("DROP TABLE memory_items_fts")
    raw.run(sql)
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


def missed_rows(raw: RawWriter) -> None:
    """Rows were written while the trigger was away."""
    sql = _sql_of(raw, _INSERT_TRIGGER)
    raw.run(f"DROP TRIGGER {_INSERT_TRIGGER}")
    raw.insert("memory_items", team_id="a", project_id="a1", text="written behind its back")
    raw.run(sql)


def missed_changes(raw: RawWriter) -> None:
    """A row was changed, word for word, while the trigger was away: no count tells."""
    sql = _sql_of(raw, _UPDATE_TRIGGER)
    raw.run(f"DROP TRIGGER {_UPDATE_TRIGGER}")
    raw.run("UPDATE memory_items SET text = replace(text, 'keeper', 'sleeper')")
    raw.run(sql)


SEEN_AT_A_GLANCE: Final[list[Callable[[RawWriter], None]]] = [
    dropped_trigger,
    altered_trigger,
    foreign_trigger,
    other_tokenizer,
    dropped_table,
    deleted_index,
    orphaned_shadows,
    missing_shadow,
    missed_rows,
]
SEEN_BY_CONTENT: Final[list[Callable[[RawWriter], None]]] = [missed_changes]
ANY: Final = [*SEEN_AT_A_GLANCE, *SEEN_BY_CONTENT]
