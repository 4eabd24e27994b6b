"""Install what no table definition can say: full text, guards, statistics, the outbox, and who may see which row.

Everything is done by triggers and policies, so that every writer is caught, also one at a psql prompt.
"""

from alembic import op

revision = "0002"
down_revision = "0001"

_PLAIN = ("title", "subtitle", "text", "narrative")
_LISTS = ("facts", "concepts")
_EXTRA = ("search_text", "neighbour_text")
_INDEXED = (*_PLAIN, *_LISTS, *_EXTRA)
_NOW_MS = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

_TEAM_TABLES = (
    "team_members",
    "projects",
    "project_statistics",
    "api_keys",
    "server_sessions",
    "agent_events",
    "memory_items",
    "memory_sources",
    "audit_log",
    "operations",
    "usage_counters",
    "vector_outbox",
)


def _function(signature: str, returns: str, body: str, *, declare: str = "", options: str = "") -> str:
    """Return a function in PL/pgSQL, bound to the schema in which it is made."""
    return f"""
    CREATE FUNCTION {signature} RETURNS {returns} LANGUAGE plpgsql {options} SET search_path FROM CURRENT AS $body$
    {declare}
    BEGIN
      {body}
    END
    $body$
    """


def _expression(signature: str, returns: str, body: str, volatility: str = "IMMUTABLE PARALLEL SAFE") -> str:
    return f"CREATE FUNCTION {signature} RETURNS {returns} LANGUAGE sql {volatility} AS $body$ {body} $body$"


def _changed(names: tuple[str, ...], old: str = "old", new: str = "new") -> str:
    before, after = (", ".join(f"{row}.{name}" for name in names) for row in (old, new))
    return f"({before}) IS DISTINCT FROM ({after})"


def _lines(column: str) -> str:
    """Return SQL for the words of a JSON array: its escapes become blanks."""
    for escape in (r"\\", r"\n", r"\t", r"\r"):
        column = f"replace({column}, '{escape}', ' ')"
    return column


# What SQLite's unicode61 takes for a letter beside letters and decimal digits: other numbers, and one of private use.
_MORE_LETTERS = (
    "\u00b2\u00b3\u00b9\u00bc-\u00be\u09f4-\u09f9\u0b72-\u0b77\u0bf0-\u0bf2\u0c78-\u0c7e\u0d58-\u0d5e\u0d70-\u0d78"
    "\u0f2a-\u0f33\u1369-\u137c\u16ee-\u16f0\u17f0-\u17f9\u19da\u2070\u2074-\u2079\u2080-\u2089\u2150-\u2182"
    "\u2185-\u2189\u2460-\u249b\u24ea-\u24ff\u2776-\u2793\u2cfd\u3007\u3021-\u3029\u3038-\u303a\u3192-\u3195"
    "\u3220-\u3229\u3248-\u324f\u3251-\u325f\u3280-\u3289\u32b1-\u32bf\ua6e6-\ua6ef\ua830-\ua835\U00010107-\U00010133"
    "\U00010140-\U00010178\U0001018a\U0001018b\U000102e1-\U000102fb\U00010320-\U00010323\U00010341\U0001034a"
    "\U000103d1-\U000103d5\U00010858-\U0001085f\U00010879-\U0001087f\U000108a7-\U000108af\U000108fb-\U000108ff"
    "\U00010916-\U0001091b\U000109bc\U000109bd\U000109c0-\U000109cf\U000109d2-\U000109ff\U00010a40-\U00010a48"
    "\U00010a7d\U00010a7e\U00010a9d-\U00010a9f\U00010aeb-\U00010aef\U00010b58-\U00010b5f\U00010b78-\U00010b7f"
    "\U00010ba9-\U00010baf\U00010cfa-\U00010cff\U00010e60-\U00010e7e\U00010f1d-\U00010f26\U00010f51-\U00010f54"
    "\U00010fc5-\U00010fcb\U00011052-\U00011065\U000111e1-\U000111f4\U0001173a\U0001173b\U000118ea-\U000118f2"
    "\U00011c5a-\U00011c6c\U00011fc0-\U00011fd4\U00012400-\U0001246e\U00016b5b-\U00016b61\U00016e80-\U00016e96"
    "\U0001d2e0-\U0001d2f3\U0001d360-\U0001d378\U0001e8c7-\U0001e8cf\U0001ec71-\U0001ecab\U0001ecad-\U0001ecaf"
    "\U0001ecb1-\U0001ecb4\U0001ed01-\U0001ed2d\U0001ed2f-\U0001ed3d\U0001f100-\U0001f10c"
    "\ue000"
)

# Words are those of SQLite's `porter unicode61 remove_diacritics 2`, whatever locale the database has. A longer word
# is known by its beginning: tsvector allows 2 kB, and many long ones in a part must stay under its 1 MB.
_WORD_CHARACTERS = 100
_PART_WORDS = 2_000
_OVERLAP_WORDS = 16
_STEM = f"""CASE WHEN octet_length(split) BETWEEN 3 AND 64
            THEN coalesce((ts_lexize('cmem_porter', split))[1], split) ELSE left(split, {_WORD_CHARACTERS}) END"""
"""As FTS5's Porter stemmer has it: shorter and longer words stay as they are."""
_SEARCHED = (
    *(f"memory.{name}" for name in _PLAIN),
    *(_lines(f"memory.{name}") for name in _LISTS),
    "memory.search_text",
)

_SEES = "NULLIF(current_setting('cmem.team_id', true), '') IN ({team}, '*')"
"""Whether the rows of a team may be seen: set for each transaction, to a team or to `*` for the server itself."""
_SEES_TEAM = _SEES.format(team="team_id")

_FULL_TEXT = (
    "CREATE EXTENSION IF NOT EXISTS btree_gin",
    "CREATE TEXT SEARCH DICTIONARY cmem_porter (TEMPLATE = snowball, LANGUAGE = porter)",
    # PL/pgSQL keeps its plans, which a function in plain SQL makes anew for each call. Most text is plain ASCII, for
    # which no locale is asked: that is three times as quick.
    _function(
        "cmem_words(body text)",
        "text[]",
        rf"""
        IF octet_length(body) = length(body) THEN
          RETURN (
            SELECT coalesce(array_agg({_STEM}), '{{}}')
            FROM regexp_split_to_table(lower(body COLLATE "C"), '[^a-z0-9]+' COLLATE "C") AS split
            WHERE split <> ''
          );
        END IF;
        RETURN (
          SELECT coalesce(array_agg({_STEM}), '{{}}')
          FROM regexp_split_to_table(
            lower(normalize(
              regexp_replace(normalize(body, NFD), '(?<=[A-Za-z])[\u0300-\u036f]+', '', 'g'), NFC
            ) COLLATE "und-x-icu"),
            '[^[:alnum:]{_MORE_LETTERS}]+' COLLATE "und-x-icu"
          ) AS split
          WHERE split <> ''
        );
        """,
        options="IMMUTABLE STRICT PARALLEL SAFE",
    ),
    _function(
        "cmem_vector(words text[])",
        "tsvector",
        """
        RETURN (
          SELECT coalesce(string_agg('''' || word || ''':' || place, ' '), '')::tsvector
          FROM unnest(words) WITH ORDINALITY AS placed(word, place) WHERE word <> ''
        );
        """,
        options="IMMUTABLE PARALLEL SAFE",
    ),
    """
    CREATE TABLE memory_items_fts (
      seq BIGINT NOT NULL,
      part INTEGER NOT NULL,
      team_id TEXT NOT NULL,
      project_id TEXT NOT NULL,
      own TSVECTOR NOT NULL,
      beside TSVECTOR NOT NULL,
      CONSTRAINT pk_memory_items_fts PRIMARY KEY (seq, part)
    )
    """,
    "CREATE INDEX ix_memory_items_fts_own ON memory_items_fts USING gin (project_id, own)",
    "CREATE INDEX ix_memory_items_fts_beside ON memory_items_fts USING gin (project_id, beside)",
    _function(
        "cmem_parts(memory memory_items)",
        "TABLE (part integer, own tsvector, beside tsvector)",
        f"""
        words := {" || ARRAY[''] || ".join(f"coalesce(cmem_words({field}), '{{}}')" for field in _SEARCHED)};
        part := 0;
        LOOP
          own := cmem_vector(words[part * {_PART_WORDS} + 1 : (part + 1) * {_PART_WORDS} + {_OVERLAP_WORDS}]);
          beside := CASE WHEN part = 0 THEN
            cmem_vector(coalesce((cmem_words(memory.neighbour_text))[1:{2 * _PART_WORDS}], '{{}}')) ELSE '' END;
          RETURN NEXT;
          part := part + 1;
          EXIT WHEN part * {_PART_WORDS} >= cardinality(words);
        END LOOP;
        """,
        declare="DECLARE words text[];",
        options="STABLE",
    ),
    _function(
        "cmem_index(memory memory_items)",
        "void",
        """
        INSERT INTO memory_items_fts(seq, part, team_id, project_id, own, beside)
        SELECT memory.seq, part, memory.team_id, memory.project_id, own, beside FROM cmem_parts(memory);
        """,
    ),
    # the rows are kept from changing meanwhile: their own triggers would index them a second time
    _function(
        "cmem_index_anew(behind bigint, up_to bigint)",
        "void",
        f"""
        PERFORM 1 FROM memory_items WHERE seq > behind AND seq <= up_to ORDER BY seq FOR NO KEY UPDATE;
        DELETE FROM memory_items_fts WHERE seq > behind AND (up_to IS NULL OR seq <= up_to) AND {_SEES_TEAM};
        PERFORM cmem_index(memory_items) FROM memory_items WHERE seq > behind AND seq <= up_to;
        """,
        options="SECURITY DEFINER",
    ),
    _function(
        "trg_memory_items_fts_insert()",
        "trigger",
        "PERFORM cmem_index(inserted) FROM inserted; RETURN NULL;",
        options="SECURITY DEFINER",
    ),
    _function(
        "trg_memory_items_fts_update()",
        "trigger",
        f"""
        DELETE FROM memory_items_fts USING before, changed
        WHERE memory_items_fts.seq = before.seq AND changed.seq = before.seq
          AND {_changed(_INDEXED, "before", "changed")};
        PERFORM cmem_index(changed) FROM changed JOIN before USING (seq)
        WHERE {_changed(_INDEXED, "before", "changed")};
        RETURN NULL;
        """,
        options="SECURITY DEFINER",
    ),
    _function(
        "trg_memory_items_fts_delete()",
        "trigger",
        "DELETE FROM memory_items_fts USING gone WHERE memory_items_fts.seq = gone.seq; RETURN NULL;",
        options="SECURITY DEFINER",
    ),
)


# `@@` is not leakproof: under a policy it would be asked of every row of the team instead of the index. These functions
# run as their owner, whom the policy of this one table does not bind, and check the team themselves.
def _searches(column: str) -> tuple[str, ...]:
    """Return what finds in a column: every hit, the first or last as one text, and how many with the last counted."""
    hits = f"""
        SELECT f.seq FROM unnest(project_ids) AS asked(id) CROSS JOIN LATERAL (
          SELECT seq, team_id FROM memory_items_fts WHERE project_id = asked.id AND {column} @@ query OFFSET 0
        ) AS f WHERE {_SEES.format(team="f.team_id")}"""
    options = "STABLE SECURITY DEFINER SET enable_seqscan = off"
    first, last = (
        f"SELECT DISTINCT seq FROM memory_items_fts WHERE project_id = $1 AND {column} @@ $2 AND {_SEES_TEAM}"
        f" ORDER BY seq {order} LIMIT $3"
        for order in ("ASC", "DESC")
    )
    listed = "SELECT string_agg(seq::text, ',') FROM ({found}) AS found"
    counted = "SELECT count(*), coalesce(max(seq), 0) FROM ({found}) AS found"
    values = "USING project_ids[1], query, at_most"
    return (
        _function(
            f"cmem_hits_in_{column}(project_ids text[], query tsquery)",
            "SETOF bigint",
            f"RETURN QUERY {hits};",
            options=options,
        ),
        # of one project, words that many memories hold are found by walking them in order, until there are enough;
        # which way is shorter depends on the words, so that the plan is made for each question
        _function(
            f"cmem_find_in_{column}(project_ids text[], query tsquery, at_most bigint, newest_first boolean)",
            "text",
            f"""
            IF cardinality(project_ids) = 1 AND newest_first THEN
              EXECUTE $q${listed.format(found=last)}$q$ INTO found {values};
            ELSIF cardinality(project_ids) = 1 THEN
              EXECUTE $q${listed.format(found=first)}$q$ INTO found {values};
            ELSE
              SELECT string_agg(few.seq::text, ',') INTO found FROM (
                SELECT hit.seq FROM ({hits}) AS hit GROUP BY hit.seq
                ORDER BY CASE WHEN newest_first THEN -hit.seq ELSE hit.seq END LIMIT at_most
              ) AS few;
            END IF;
            RETURN found;
            """,
            declare="DECLARE found text;",
            options=options,
        ),
        _function(
            f"cmem_count_in_{column}"
            "(project_ids text[], query tsquery, at_most bigint, OUT number bigint, OUT last bigint)",
            "record",
            f"""
            IF cardinality(project_ids) = 1 THEN
              EXECUTE $q${counted.format(found=first)}$q$ INTO number, last {values};
            ELSE
              SELECT count(*), coalesce(max(seq), 0) INTO number, last
              FROM (SELECT hit.seq FROM ({hits}) AS hit GROUP BY hit.seq ORDER BY hit.seq LIMIT at_most) AS few;
            END IF;
            """,
            options=options,
        ),
    )


_FINDING = (
    # damaged JSON reads as an empty list
    _function(
        "cmem_list(items text)",
        "text[]",
        """
        RETURN array(SELECT jsonb_array_elements_text(items::jsonb));
        EXCEPTION WHEN OTHERS THEN RETURN '{}';
        """,
        options="IMMUTABLE PARALLEL SAFE",
    ),
    _function(
        "cmem_object(pairs text)",
        "jsonb",
        """
        RETURN pairs::jsonb;
        EXCEPTION WHEN OTHERS THEN RETURN '{}'::jsonb;
        """,
        options="IMMUTABLE PARALLEL SAFE",
    ),
    *_searches("own"),
    *_searches("beside"),
)


def _characters(row: str) -> str:
    plain = [f"length(coalesce({row}.{name}, ''))" for name in _PLAIN]
    lists = [f"greatest(length({row}.{name}) - 2, 0)" for name in _LISTS]
    return " + ".join([*plain, *lists])


_STATISTICS = (
    _function(
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
    _function(
        "trg_memory_items_statistics_update()",
        "trigger",
        f"""
        UPDATE project_statistics AS held
        SET characters = held.characters + differing.characters, changes = held.changes + differing.changes
        FROM (
          SELECT changed.project_id, count(*) AS changes,
            sum({_characters("changed")}) - sum({_characters("before")}) AS characters
          FROM changed JOIN before USING (seq) WHERE {_changed(_INDEXED, "before", "changed")}
          GROUP BY changed.project_id
        ) AS differing WHERE held.project_id = differing.project_id;
        RETURN NULL;
        """,
    ),
    _function(
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
    _function(
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
        SELECT {row}.id, {row}.team_id, {row}.project_id, '{operation}', {version}, {_NOW_MS} FROM {rows}
        ON CONFLICT (memory_id) DO UPDATE SET
          operation = excluded.operation, version = greatest(held.version + 1, excluded.version),
          attempts = 0, failed = false, last_error = NULL, next_attempt_at_epoch = 0;
        RETURN NULL;"""


_OUTBOX = (
    _function(
        "trg_memory_items_outbox_insert()", "trigger", _enqueue("inserted", "inserted", "upsert", "inserted.version")
    ),
    _function(
        "trg_memory_items_outbox_update()",
        "trigger",
        _enqueue(
            f"changed JOIN before USING (seq) WHERE {_changed(_EMBEDDED, 'before', 'changed')}",
            "changed",
            "upsert",
            "changed.version",
        ),
    ),
    _function("trg_memory_items_outbox_delete()", "trigger", _enqueue("gone", "gone", "delete", "gone.version + 1")),
    _function(
        "trg_memory_items_version()",
        "trigger",
        f"""
        IF {_changed(_EMBEDDED)} AND new.version <= old.version THEN new.version := old.version + 1; END IF;
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


_STATEMENT_TRIGGERS = (
    *(
        _statement_trigger(f"trg_memory_items_{what}_{verb.lower()}", verb, "memory_items")
        for what in ("fts", "statistics", "outbox")
        for verb in ("INSERT", "UPDATE", "DELETE")
    ),
    _statement_trigger("trg_projects_statistics_delete", "DELETE", "projects"),
)


def _guard(name: str, when: str, table: str, condition: str, message: str) -> tuple[str, str]:
    """Return a trigger that refuses a change, with the class of error that a broken constraint has."""
    kept = "old" if when == "DELETE" else "new"
    refuse = f"RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = '{table}: {message}'"
    return (
        _function(f"{name}()", "trigger", f"IF {condition} THEN {refuse}; END IF; RETURN {kept};"),
        f"CREATE TRIGGER {name} BEFORE {when} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()",
    )


_OUTSIDE_TEAM = (
    "new.project_id IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM projects WHERE id = new.project_id AND team_id = new.team_id)"
)
_OUTSIDE_SESSION = (
    "new.server_session_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM server_sessions"
    " WHERE id = new.server_session_id AND project_id = new.project_id AND team_id = new.team_id)"
)

_GUARDS = (
    *(
        part
        for table in ("server_sessions", "agent_events", "memory_items", "memory_sources", "api_keys")
        for part in _guard(
            f"trg_{table}_project_team",
            "INSERT OR UPDATE OF project_id, team_id",
            table,
            _OUTSIDE_TEAM,
            "the project belongs to another team",
        )
    ),
    *(
        part
        for table in ("agent_events", "memory_items")
        for part in _guard(
            f"trg_{table}_session_project",
            "INSERT OR UPDATE OF server_session_id, project_id, team_id",
            table,
            _OUTSIDE_SESSION,
            "the session belongs to another project",
        )
    ),
    *_guard(
        "trg_server_sessions_project_update",
        "UPDATE OF project_id, team_id",
        "server_sessions",
        f"{_changed(('project_id', 'team_id'))}"
        " AND (EXISTS (SELECT 1 FROM agent_events WHERE server_session_id = old.id)"
        " OR EXISTS (SELECT 1 FROM memory_items WHERE server_session_id = old.id))",
        "a session with events or memories cannot move",
    ),
    *_guard(
        "trg_server_sessions_id_update",
        "UPDATE OF id",
        "server_sessions",
        _changed(("id",)),
        "a session keeps its id",
    ),
    *_guard(
        "trg_projects_team_update",
        "UPDATE OF id, team_id",
        "projects",
        _changed(("id", "team_id")),
        "a project keeps its id and its team",
    ),
    *_guard(
        "trg_memory_items_place_update",
        "UPDATE OF seq, id, team_id, project_id",
        "memory_items",
        _changed(("seq", "id", "team_id", "project_id")),
        "a memory keeps its id and its project",
    ),
    *_guard(
        "trg_memory_items_superseded_project",
        "INSERT OR UPDATE OF superseded_by, project_id",
        "memory_items",
        "new.superseded_by IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM memory_items WHERE id = new.superseded_by AND project_id = new.project_id)",
        "the superseding memory belongs to another project",
    ),
    *_guard(
        "trg_memory_sources_memory_project",
        "INSERT OR UPDATE OF memory_item_id, project_id",
        "memory_sources",
        "NOT EXISTS (SELECT 1 FROM memory_items WHERE id = new.memory_item_id AND project_id = new.project_id)",
        "the memory belongs to another project",
    ),
    *_guard(
        "trg_api_keys_member_team",
        "INSERT OR UPDATE OF user_id, team_id",
        "api_keys",
        "new.user_id IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM team_members WHERE user_id = new.user_id AND team_id = new.team_id)",
        "the user is not a member of the team",
    ),
    *_guard("trg_audit_log_update", "UPDATE", "audit_log", "true", "the log is append-only"),
    *_guard(
        "trg_audit_log_delete",
        "DELETE",
        "audit_log",
        "NOT EXISTS (SELECT 1 FROM audit_retention WHERE old.created_at_epoch < before_epoch)",
        "the log is append-only",
    ),
    _function(
        "trg_audit_log_truncate()",
        "trigger",
        "RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'audit_log: the log is append-only';",
    ),
    "CREATE TRIGGER trg_audit_log_truncate BEFORE TRUNCATE ON audit_log"
    " FOR EACH STATEMENT EXECUTE FUNCTION trg_audit_log_truncate()",
)


def _walls(table: str, team: str, *, also_for_the_owner: bool = True) -> tuple[str, ...]:
    """Return what lets a table show only the rows of the team that is set."""
    force = (f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",) if also_for_the_owner else ()
    return (
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY tenant ON {table} USING ({_SEES.format(team=team)})",
        *force,
    )


_WALLS = (
    *_walls("teams", "id"),
    *(statement for table in _TEAM_TABLES for statement in _walls(table, "team_id")),
    *_walls("memory_items_fts", "team_id", also_for_the_owner=False),
)

_EXISTING_ROWS = (
    "SELECT cmem_index(memory_items) FROM memory_items",
    f"""
    INSERT INTO project_statistics(project_id, team_id, memories, characters, changes)
    SELECT project_id, team_id, count(*), sum({_characters("memory_items")}), count(*)
    FROM memory_items GROUP BY project_id, team_id
    """,
    f"""
    INSERT INTO vector_outbox(memory_id, team_id, project_id, operation, version, enqueued_at_epoch)
    SELECT id, team_id, project_id, 'upsert', version, {_NOW_MS} FROM memory_items
    ON CONFLICT (memory_id) DO NOTHING
    """,
)

# Whose copy this database is, and how many rows of each step of it are here: for `db copy`, which can be interrupted.
_COPIED_FROM = ("CREATE TABLE copied_from (step TEXT PRIMARY KEY, source TEXT NOT NULL, rows BIGINT NOT NULL)",)


def upgrade() -> None:
    for statement in (
        *_FULL_TEXT,
        *_FINDING,
        *_STATISTICS,
        *_OUTBOX,
        *_STATEMENT_TRIGGERS,
        *_GUARDS,
        *_EXISTING_ROWS,
        *_WALLS,
        *_COPIED_FROM,
    ):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    run = op.get_bind().exec_driver_sql
    run("DROP TABLE copied_from")
    for table in ("teams", *_TEAM_TABLES):
        run(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        run(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
        run(f"DROP POLICY tenant ON {table}")
    functions = (*_FULL_TEXT, *_FINDING, *_STATISTICS, *_OUTBOX, *_GUARDS)
    names = [text.split("CREATE FUNCTION ")[1].split("(")[0] for text in functions if "CREATE FUNCTION " in text]
    for name in reversed(names):
        run(f"DROP FUNCTION {name} CASCADE")
    run("DROP TABLE memory_items_fts")
    run("DROP TEXT SEARCH DICTIONARY cmem_porter")
    run("DELETE FROM project_statistics")
