"""What follows each change of a memory: the statistics of its project and the outbox of the vector mirror."""

from migrations.postgresql_0002.sql import INDEXED, LISTS, NOW_MS, PLAIN, changed, function


def _characters(row: str) -> str:
    plain = [f"length(coalesce({row}.{name}, ''))" for name in PLAIN]
    lists = [f"greatest(length({row}.{name}) - 2, 0)" for name in LISTS]
    return " + ".join([*plain, *lists])


STATISTICS = (
    function(
        "trg_memory_items_statistics_insert()",
        "trigger",
        f"""
        INSERT INTO project_statistics AS held (project_id, team_id, memories, characters, changes)
        SELECT project_id, team_id, count(*), sum({_characters("inserted")}), count(*)
        FROM inserted GROUP BY project_id, team_id ORDER BY project_id
        ON CONFLICT (project_id) DO UPDATE SET
          memories = held.memories + excluded.memories, characters = held.characters + excluded.characters,
          changes = held.changes + excluded.changes;
        RETURN NULL;
        """,
    ),
    function(
        "trg_memory_items_statistics_update()",
        "trigger",
        f"""
        UPDATE project_statistics AS held
        SET characters = held.characters + differing.characters, changes = held.changes + differing.changes
        FROM (
          SELECT changed.project_id, count(*) AS changes,
            sum({_characters("changed")}) - sum({_characters("before")}) AS characters
          FROM changed JOIN before USING (seq) WHERE {changed(INDEXED, "before", "changed")}
          GROUP BY changed.project_id
        ) AS differing WHERE held.project_id = differing.project_id;
        RETURN NULL;
        """,
    ),
    function(
        "trg_memory_items_statistics_delete()",
        "trigger",
        f"""
        UPDATE project_statistics AS held
        SET memories = held.memories - lost.memories, characters = held.characters - lost.characters,
          changes = held.changes + lost.memories
        FROM (SELECT project_id, count(*) AS memories, sum({_characters("gone")}) AS characters FROM gone
          GROUP BY project_id) AS lost
        WHERE held.project_id = lost.project_id;
        RETURN NULL;
        """,
    ),
    function(
        "trg_projects_statistics_delete()",
        "trigger",
        "DELETE FROM project_statistics USING gone WHERE project_statistics.project_id = gone.id; RETURN NULL;",
    ),
)

_EMBEDDED = ("title", "subtitle", "text", "narrative", "facts", "kind", "type", "created_at_epoch")


def _enqueue(rows: str, row: str, operation: str, version: str) -> str:
    """Return SQL that leaves one pending entry per memory; a claim stands, so that no two mirror it at once."""
    return f"""
        INSERT INTO vector_outbox AS held (memory_id, team_id, project_id, operation, version, enqueued_at_epoch)
        SELECT {row}.id, {row}.team_id, {row}.project_id, '{operation}', {version}, {NOW_MS} FROM {rows}
        ON CONFLICT (memory_id) DO UPDATE SET
          operation = excluded.operation, version = greatest(held.version + 1, excluded.version),
          attempts = 0, failed = false, last_error = NULL, next_attempt_at_epoch = 0;
        RETURN NULL;"""


OUTBOX = (
    function(
        "trg_memory_items_outbox_insert()", "trigger", _enqueue("inserted", "inserted", "upsert", "inserted.version")
    ),
    function(
        "trg_memory_items_outbox_update()",
        "trigger",
        _enqueue(
            f"changed JOIN before USING (seq) WHERE {changed(_EMBEDDED, 'before', 'changed')}",
            "changed",
            "upsert",
            "changed.version",
        ),
    ),
    function("trg_memory_items_outbox_delete()", "trigger", _enqueue("gone", "gone", "delete", "gone.version + 1")),
    function(
        "trg_memory_items_version()",
        "trigger",
        f"""
        IF {changed(_EMBEDDED)} AND new.version <= old.version THEN new.version := old.version + 1; END IF;
        RETURN new;
        """,
    ),
    "CREATE TRIGGER trg_memory_items_version BEFORE UPDATE ON memory_items"
    " FOR EACH ROW EXECUTE FUNCTION trg_memory_items_version()",
)


def _statement_trigger(name: str, verb: str, table: str) -> str:
    """Return a trigger that sees all rows of a statement at once: a cascade of thousands updates a counter once."""
    seen = {
        "INSERT": "NEW TABLE AS inserted",
        "UPDATE": "OLD TABLE AS before NEW TABLE AS changed",
        "DELETE": "OLD TABLE AS gone",
    }[verb]
    return (
        f"CREATE TRIGGER {name} AFTER {verb} ON {table} REFERENCING {seen} FOR EACH STATEMENT EXECUTE FUNCTION {name}()"
    )


STATEMENT_TRIGGERS = (
    *(
        _statement_trigger(f"trg_memory_items_{what}_{verb.lower()}", verb, "memory_items")
        for what in ("fts", "statistics", "outbox")
        for verb in ("INSERT", "UPDATE", "DELETE")
    ),
    _statement_trigger("trg_projects_statistics_delete", "DELETE", "projects"),
)

EXISTING_ROWS = (
    "SELECT cmem_index(memory_items) FROM memory_items",
    f"""
    INSERT INTO project_statistics(project_id, team_id, memories, characters, changes)
    SELECT project_id, team_id, count(*), sum({_characters("memory_items")}), count(*)
    FROM memory_items GROUP BY project_id, team_id
    """,
    f"""
    INSERT INTO vector_outbox(memory_id, team_id, project_id, operation, version, enqueued_at_epoch)
    SELECT id, team_id, project_id, 'upsert', version, {NOW_MS} FROM memory_items
    ON CONFLICT (memory_id) DO NOTHING
    """,
)
