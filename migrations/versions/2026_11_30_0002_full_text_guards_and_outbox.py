"""Install what no table definition can say: full text, the guards between projects and teams, statistics, the outbox.

Everything is done by triggers, so that every writer is caught, also a plain sqlite3 shell with foreign keys off.
"""

from alembic import op

revision = "0002"
down_revision = "0001"


def _lines(column: str) -> str:
    """Return SQL for the words of a JSON array: its escapes become blanks.

    json_each() would say it better, but FTS5 refuses to read a view that uses a table-valued function.
    """
    for escape in (r"\\", r"\n", r"\t", r"\r"):
        column = f"replace({column}, '{escape}', ' ')"
    return column


# The project is one token. It ends in a digit, which the Porter stemmer leaves alone.
_PROJECT = "replace({row}.project_id, '-', '') || '0'"
_PLAIN = ("title", "subtitle", "text", "narrative")
_LISTS = ("facts", "concepts")
_EXTRA = ("search_text", "neighbour_text")
_INDEXED = (*_PLAIN, *_LISTS, *_EXTRA)
_COLUMNS = ", ".join(("project", *_INDEXED))


def _values(row: str) -> str:
    plain = [f"{row}.{name}" for name in _PLAIN]
    lists = [_lines(f"{row}.{name}") for name in _LISTS]
    extra = [f"{row}.{name}" for name in _EXTRA]
    return ", ".join([_PROJECT.format(row=row), *plain, *lists, *extra])


def _changed(names: tuple[str, ...]) -> str:
    return " OR ".join(f"old.{name} IS NOT new.{name}" for name in names)


_FULL_TEXT = (
    f"""
    CREATE VIEW memory_items_fts_content AS
    SELECT seq, {_PROJECT.format(row="memory_items")} AS project, {", ".join(_PLAIN)},
      {", ".join(f"{_lines(name)} AS {name}" for name in _LISTS)},
      {", ".join(_EXTRA)}
    FROM memory_items
    """,
    f"""
    CREATE VIRTUAL TABLE memory_items_fts USING fts5(
      {_COLUMNS},
      content='memory_items_fts_content', content_rowid='seq', tokenize='porter unicode61 remove_diacritics 2'
    )
    """,
    f"""
    CREATE TRIGGER trg_memory_items_fts_insert AFTER INSERT ON memory_items BEGIN
      INSERT INTO memory_items_fts(rowid, {_COLUMNS}) VALUES (new.seq, {_values("new")});
    END
    """,
    f"""
    CREATE TRIGGER trg_memory_items_fts_update AFTER UPDATE OF project_id, {", ".join(_INDEXED)} ON memory_items
    WHEN {_changed(("project_id", *_INDEXED))} BEGIN
      INSERT INTO memory_items_fts(memory_items_fts, rowid, {_COLUMNS}) VALUES ('delete', old.seq, {_values("old")});
      INSERT INTO memory_items_fts(rowid, {_COLUMNS}) VALUES (new.seq, {_values("new")});
    END
    """,
    f"""
    CREATE TRIGGER trg_memory_items_fts_delete AFTER DELETE ON memory_items BEGIN
      INSERT INTO memory_items_fts(memory_items_fts, rowid, {_COLUMNS}) VALUES ('delete', old.seq, {_values("old")});
    END
    """,
)


def _characters(row: str) -> str:
    plain = [f"length(coalesce({row}.{name}, ''))" for name in _PLAIN]
    lists = [f"max(length({row}.{name}) - 2, 0)" for name in _LISTS]
    return " + ".join([*plain, *lists])


_STATISTICS = (
    f"""
    CREATE TRIGGER trg_memory_items_statistics_insert AFTER INSERT ON memory_items BEGIN
      INSERT INTO project_statistics(project_id, team_id, memories, characters, changes)
      VALUES (new.project_id, new.team_id, 1, {_characters("new")}, 1)
      ON CONFLICT(project_id) DO UPDATE SET
        memories = memories + 1, characters = characters + excluded.characters, changes = changes + 1;
    END
    """,
    f"""
    CREATE TRIGGER trg_memory_items_statistics_update AFTER UPDATE OF {", ".join(_INDEXED)} ON memory_items
    WHEN {_changed(_INDEXED)} BEGIN
      UPDATE project_statistics
      SET characters = characters + ({_characters("new")}) - ({_characters("old")}), changes = changes + 1
      WHERE project_id = new.project_id;
    END
    """,
    f"""
    CREATE TRIGGER trg_memory_items_statistics_delete AFTER DELETE ON memory_items BEGIN
      UPDATE project_statistics
      SET memories = memories - 1, characters = characters - ({_characters("old")}), changes = changes + 1
      WHERE project_id = old.project_id;
    END
    """,
    """
    CREATE TRIGGER trg_projects_statistics_delete AFTER DELETE ON projects BEGIN
      DELETE FROM project_statistics WHERE project_id = old.id;
    END
    """,
)

_EMBEDDED = ("title", "subtitle", "text", "narrative", "facts", "kind", "type", "created_at_epoch")
_NOW_MS = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


def _enqueue(row: str, operation: str, version: str) -> str:
    """Return SQL that leaves one pending entry per memory; a claim stands, so that no two mirror it at once."""
    return f"""
      INSERT INTO vector_outbox(memory_id, team_id, project_id, operation, version, enqueued_at_epoch)
      VALUES ({row}.id, {row}.team_id, {row}.project_id, '{operation}', {version}, {_NOW_MS})
      ON CONFLICT(memory_id) DO UPDATE SET
        operation = excluded.operation, version = max(vector_outbox.version + 1, excluded.version),
        attempts = 0, failed = false, last_error = NULL, next_attempt_at_epoch = 0;"""


_OUTBOX = (
    f"""
    CREATE TRIGGER trg_memory_items_outbox_insert AFTER INSERT ON memory_items BEGIN
      {_enqueue("new", "upsert", "new.version")}
    END
    """,
    f"""
    CREATE TRIGGER trg_memory_items_outbox_update AFTER UPDATE OF {", ".join(_EMBEDDED)} ON memory_items
    WHEN {_changed(_EMBEDDED)} BEGIN
      {_enqueue("new", "upsert", "max(new.version, old.version + 1)")}
      UPDATE memory_items SET version = old.version + 1 WHERE seq = new.seq AND version = old.version;
    END
    """,
    f"""
    CREATE TRIGGER trg_memory_items_outbox_delete AFTER DELETE ON memory_items BEGIN
      {_enqueue("old", "delete", "old.version + 1")}
    END
    """,
)


def _guard(name: str, when: str, table: str, condition: str, message: str) -> str:
    """Return a trigger that refuses a change. RAISE(ABORT) holds under OR IGNORE and OR REPLACE too."""
    return f"""
    CREATE TRIGGER {name} BEFORE {when} ON {table}
    WHEN {condition} BEGIN
      SELECT RAISE(ABORT, '{table}: {message}');
    END
    """


_OUTSIDE_TEAM = (
    "new.project_id IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM projects WHERE id = new.project_id AND team_id = new.team_id)"
)
_OUTSIDE_SESSION = (
    "new.server_session_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM server_sessions"
    " WHERE id = new.server_session_id AND project_id = new.project_id AND team_id = new.team_id)"
)


def _taken(table: str, keys: tuple[tuple[str, ...], ...], besides: str = "") -> str:
    """Return SQL that says whether a row with one of these keys stands already."""
    same = (" AND ".join(f"{column} = new.{column}" for column in key) for key in keys)
    return " OR ".join(f"EXISTS (SELECT 1 FROM {table} WHERE {each}{besides})" for each in same)


def _pair(name: str, table: str, columns: str, condition: str, message: str) -> tuple[str, str]:
    """Return the same guard for inserts and for updates of `columns`."""
    return (
        _guard(f"{name}_insert", "INSERT", table, condition, message),
        _guard(f"{name}_update", f"UPDATE OF {columns}", table, condition, message),
    )


def _unreplaceable(table: str, *keys: tuple[str, ...]) -> tuple[str, str]:
    """Return guards that keep OR REPLACE from removing a standing row.

    That row would go without its delete triggers: its words and vectors would stay findable, its children alone.
    """
    columns = ", ".join(dict.fromkeys(column for key in keys for column in key))
    name, message = f"trg_{table}_replace", "there is such a row already"
    return (
        _guard(f"{name}_insert", "INSERT", table, _taken(table, keys), message),
        _guard(
            f"{name}_update", f"UPDATE OF {columns}", table, _taken(table, keys, " AND rowid <> old.rowid"), message
        ),
    )


def _immutable(name: str, table: str, columns: tuple[str, ...], message: str) -> str:
    """Return a guard that keeps columns as they were inserted."""
    return _guard(name, f"UPDATE OF {', '.join(columns)}", table, _changed(columns), message)


_GUARDS = (
    *(
        guard
        for table in ("server_sessions", "agent_events", "memory_items", "memory_sources", "api_keys")
        for guard in _pair(
            f"trg_{table}_project_team",
            table,
            "project_id, team_id",
            _OUTSIDE_TEAM,
            "the project belongs to another team",
        )
    ),
    *(
        guard
        for table in ("agent_events", "memory_items")
        for guard in _pair(
            f"trg_{table}_session_project",
            table,
            "server_session_id, project_id, team_id",
            _OUTSIDE_SESSION,
            "the session belongs to another project",
        )
    ),
    _guard(
        "trg_server_sessions_project_update",
        "UPDATE OF project_id, team_id",
        "server_sessions",
        f"({_changed(('project_id', 'team_id'))})"
        " AND (EXISTS (SELECT 1 FROM agent_events WHERE server_session_id = old.id)"
        " OR EXISTS (SELECT 1 FROM memory_items WHERE server_session_id = old.id))",
        "a session with events or memories cannot move",
    ),
    _immutable("trg_server_sessions_id_update", "server_sessions", ("id",), "a session keeps its id"),
    # what a foreign key does where they are on: no child may wait for another project's session to take the id
    """
    CREATE TRIGGER trg_server_sessions_delete AFTER DELETE ON server_sessions BEGIN
      UPDATE agent_events SET server_session_id = NULL WHERE server_session_id = old.id;
      UPDATE memory_items SET server_session_id = NULL WHERE server_session_id = old.id;
    END
    """,
    _immutable("trg_projects_team_update", "projects", ("id", "team_id"), "a project keeps its id and its team"),
    # full text is addressed by seq, vectors and statistics by id and project
    _immutable(
        "trg_memory_items_place_update",
        "memory_items",
        ("seq", "id", "team_id", "project_id"),
        "a memory keeps its id and its project",
    ),
    *_pair(
        "trg_memory_items_superseded_project",
        "memory_items",
        "superseded_by, project_id",
        "new.superseded_by IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM memory_items WHERE id = new.superseded_by AND project_id = new.project_id)",
        "the superseding memory belongs to another project",
    ),
    *_pair(
        "trg_memory_sources_memory_project",
        "memory_sources",
        "memory_item_id, project_id",
        "NOT EXISTS (SELECT 1 FROM memory_items WHERE id = new.memory_item_id AND project_id = new.project_id)",
        "the memory belongs to another project",
    ),
    *_pair(
        "trg_api_keys_member_team",
        "api_keys",
        "user_id, team_id",
        "new.user_id IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM team_members WHERE user_id = new.user_id AND team_id = new.team_id)",
        "the user is not a member of the team",
    ),
    *_unreplaceable("teams", ("id",), ("slug",)),
    *_unreplaceable("projects", ("id",), ("team_id", "slug"), ("team_id", "root_path")),
    *_unreplaceable("server_sessions", ("id",), ("project_id", "platform_source", "external_session_id")),
    *_unreplaceable("memory_items", ("seq",), ("id",), ("project_id", "dedup_scope", "kind", "content_hash")),
    _guard(
        "trg_audit_log_replace_insert",
        "INSERT",
        "audit_log",
        "EXISTS (SELECT 1 FROM audit_log WHERE id = new.id OR seq = new.seq)",
        "the log is append-only",
    ),
    _guard("trg_audit_log_update", "UPDATE", "audit_log", "true", "the log is append-only"),
    _guard(
        "trg_audit_log_delete",
        "DELETE",
        "audit_log",
        "NOT EXISTS (SELECT 1 FROM audit_retention WHERE old.created_at_epoch < before_epoch)",
        "the log is append-only",
    ),
)

_EXISTING_ROWS = (
    "INSERT INTO memory_items_fts(memory_items_fts) VALUES ('rebuild')",
    f"""
    INSERT INTO project_statistics(project_id, team_id, memories, characters, changes)
    SELECT project_id, team_id, count(*), sum({_characters("memory_items")}), count(*)
    FROM memory_items GROUP BY project_id, team_id
    """,
    f"""
    INSERT INTO vector_outbox(memory_id, team_id, project_id, operation, version, enqueued_at_epoch)
    SELECT id, team_id, project_id, 'upsert', version, {_NOW_MS} FROM memory_items WHERE true
    ON CONFLICT(memory_id) DO NOTHING
    """,
)
_TRIGGERS = (*_FULL_TEXT[2:], *_STATISTICS, *_OUTBOX, *_GUARDS)


def upgrade() -> None:
    for statement in (*_FULL_TEXT, *_STATISTICS, *_OUTBOX, *_GUARDS, *_EXISTING_ROWS):
        op.execute(statement)


def downgrade() -> None:
    for statement in _TRIGGERS:
        op.execute(f"DROP TRIGGER {statement.split()[2]}")
    op.execute("DROP TABLE memory_items_fts")
    op.execute("DROP VIEW memory_items_fts_content")
    op.execute("DELETE FROM project_statistics")
