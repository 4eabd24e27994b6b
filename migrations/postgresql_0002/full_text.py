"""Full text: words as SQLite has them, a row of vectors for each part of a memory, kept by triggers."""

from migrations.postgresql_0002.sql import INDEXED, LISTS, PLAIN, SEES_TEAM, changed, function, lines

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
    *(f"memory.{name}" for name in PLAIN),
    *(lines(f"memory.{name}") for name in LISTS),
    "memory.search_text",
)

FULL_TEXT = (
    "CREATE EXTENSION IF NOT EXISTS btree_gin",
    "CREATE TEXT SEARCH DICTIONARY cmem_porter (TEMPLATE = snowball, LANGUAGE = porter)",
    # PL/pgSQL keeps its plans, which a function in plain SQL makes anew for each call. Most text is plain ASCII, for
    # which no locale is asked: that is three times as quick.
    function(
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
    function(
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
    function(
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
    function(
        "cmem_index(memory memory_items)",
        "void",
        """
        INSERT INTO memory_items_fts(seq, part, team_id, project_id, own, beside)
        SELECT memory.seq, part, memory.team_id, memory.project_id, own, beside FROM cmem_parts(memory);
        """,
    ),
    # the rows are kept from changing meanwhile: their own triggers would index them a second time
    function(
        "cmem_index_anew(behind bigint, up_to bigint)",
        "void",
        f"""
        PERFORM 1 FROM memory_items WHERE seq > behind AND seq <= up_to ORDER BY seq FOR NO KEY UPDATE;
        DELETE FROM memory_items_fts WHERE seq > behind AND (up_to IS NULL OR seq <= up_to) AND {SEES_TEAM};
        PERFORM cmem_index(memory_items) FROM memory_items WHERE seq > behind AND seq <= up_to;
        """,
        options="SECURITY DEFINER",
    ),
    function(
        "trg_memory_items_fts_insert()",
        "trigger",
        "PERFORM cmem_index(inserted) FROM inserted; RETURN NULL;",
        options="SECURITY DEFINER",
    ),
    function(
        "trg_memory_items_fts_update()",
        "trigger",
        f"""
        DELETE FROM memory_items_fts USING before, changed
        WHERE memory_items_fts.seq = before.seq AND changed.seq = before.seq
          AND {changed(INDEXED, "before", "changed")};
        PERFORM cmem_index(changed) FROM changed JOIN before USING (seq)
        WHERE {changed(INDEXED, "before", "changed")};
        RETURN NULL;
        """,
        options="SECURITY DEFINER",
    ),
    function(
        "trg_memory_items_fts_delete()",
        "trigger",
        "DELETE FROM memory_items_fts USING gone WHERE memory_items_fts.seq = gone.seq; RETURN NULL;",
        options="SECURITY DEFINER",
    ),
)
