"""Opens a claude-mem database and streams its sessions and memories, each row as one outcome.

Knows which rows belong together and which are wanted; leaves files to snapshot, SQL to tables, columns to meaning.
"""

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from app.legacy import origin, row_mapping, snapshot, tables
from app.legacy.shapes import (
    INTERNAL_PROJECT,
    KIND_OF_TABLE,
    MEMORY_TABLES,
    OBSERVATIONS,
    SERVER_PROJECTS,
    SESSION_TABLES,
    SESSIONS,
    Failed,
    LegacyId,
    LegacyMemory,
    LegacySession,
    Rules,
    Skipped,
)


class NotClaudeMem(Exception):
    """The file is no SQLite database, or holds none of claude-mem's tables."""


class LegacyDatabase:
    """A private copy of a claude-mem database, open for reading. `origin` names the database it was copied from."""

    def __init__(self, connection: sqlite3.Connection, rules: Rules) -> None:
        self.origin = origin.identify(connection)
        self._connection = connection
        self._rules = rules
        self._projects = _project_names(connection)
        self._sessions = _SessionIndex()
        for entry in self._read_sessions():
            if isinstance(entry, LegacySession):
                self._sessions.add(entry)

    def count(self, table: str) -> int:
        """The number of rows in one of claude-mem's tables, 0 when it is absent or damaged."""
        with contextlib.suppress(sqlite3.DatabaseError):
            return tables.count(self._connection, table)
        return 0

    def sessions(self) -> Iterator[LegacySession | Skipped | Failed]:
        """Every session, table by table in its original order."""
        for entry in self._read_sessions():
            if isinstance(entry, LegacySession) and self._is_internal(entry.project):
                yield Skipped(entry.legacy_table, entry.legacy_id, "internal to claude-mem")
            else:
                yield entry

    def memories(self) -> Iterator[LegacyMemory | Skipped | Failed]:
        """Every prompt, observation, summary and memory item, table by table in its original order.

        Needs memory for the sessions alone, however many rows there are.
        """
        for table in MEMORY_TABLES:
            yield from self._memories_of(table)

    def _read_sessions(self) -> Iterator[LegacySession | Failed]:
        for table in SESSION_TABLES:
            previous_ms = 0
            for row in self._rows(table):
                if isinstance(row, Failed):
                    yield row
                    continue
                entry = row_mapping.session(row, previous_ms=previous_ms)
                previous_ms = entry.started_at_epoch_ms
                yield entry

    def _rows(self, table: str) -> Iterator[tables.Row | Failed]:
        for row in tables.rows(self._connection, table):
            if isinstance(row, tables.Row) and (project_id := row.text("project_id")):
                row.supply("project", self._projects.get(project_id, project_id))
            yield row

    def _memories_of(self, table: str) -> Iterator[LegacyMemory | Skipped | Failed]:
        repeats = _Repeats(self._connection)
        previous_ms = 0
        for row in self._rows(table):
            if isinstance(row, Failed):
                yield row
                continue
            entry = row_mapping.memory(row, self._sessions.of(row), previous_ms=previous_ms)
            previous_ms = entry.created_at_epoch_ms
            reason = self._reason_to_skip(row, entry, repeats)
            yield Skipped(table, row.legacy_id, reason) if reason else entry

    def _reason_to_skip(self, row: tables.Row, entry: LegacyMemory, repeats: "_Repeats") -> str | None:
        if self._is_internal(entry.project):
            return "internal to claude-mem"
        if row.text("origin_device_id") and not self._rules.other_devices:
            return "copied from another device"
        if row_mapping.is_empty(entry):
            return "empty"
        observation_id = row.number("legacy_observation_id")
        if observation_id is not None and tables.holds(self._connection, OBSERVATIONS, observation_id):
            return f"a copy of observation {observation_id}"
        if row.table == OBSERVATIONS:
            first_id = repeats.first_id(row)
            return None if first_id == row.legacy_id else f"repeats row {first_id}"
        return None

    def _is_internal(self, project: str) -> bool:
        return project == INTERNAL_PROJECT and not self._rules.internal


def _project_names(connection: sqlite3.Connection) -> dict[str, str]:
    rows = [row for row in tables.rows(connection, SERVER_PROJECTS) if isinstance(row, tables.Row)]
    return {str(row.legacy_id): name for row in rows if (name := row.text("name"))}


class _SessionIndex:
    """Finds the session of a memory row. Of sessions that share an id, the oldest answers to it."""

    def __init__(self) -> None:
        self._by_id: dict[LegacyId, row_mapping.SessionKey] = {}
        self._by_memory_id: dict[str, row_mapping.SessionKey] = {}
        self._by_content_id: dict[str, row_mapping.SessionKey] = {}

    def add(self, session: LegacySession) -> None:
        key = row_mapping.SessionKey(
            session.legacy_id, session.project, session.platform_source, session.started_at_epoch_ms
        )
        self._by_id[session.legacy_id] = key
        if session.memory_session_id:
            self._by_memory_id.setdefault(session.memory_session_id, key)
        if session.content_session_id:
            self._by_content_id.setdefault(session.content_session_id, key)

    def of(self, row: tables.Row) -> row_mapping.SessionKey | None:
        return (
            self._by_id.get(row.number("session_db_id") or row.text("server_session_id") or "")
            or self._by_memory_id.get(row.text("memory_session_id") or "")
            or self._by_content_id.get(row.text("content_session_id") or "")
        )


class _Repeats:
    """Remembers each observation's identity in a temporary table, so that memory does not grow with the rows."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute("DROP TABLE IF EXISTS temp.seen")
        connection.execute("CREATE TEMP TABLE seen (identity BLOB PRIMARY KEY, id) WITHOUT ROWID")

    def first_id(self, row: tables.Row) -> LegacyId:
        """The id of the first row that was the same, this row's own when it is new."""
        key = row_mapping.identity(row)
        added = self._connection.execute("INSERT OR IGNORE INTO temp.seen VALUES (?, ?)", (key, row.legacy_id))
        if added.rowcount:
            return row.legacy_id
        found: tuple[LegacyId] = self._connection.execute(
            "SELECT id FROM temp.seen WHERE identity = ?", (key,)
        ).fetchone()
        return found[0]


@contextlib.contextmanager
def opened(path: Path, rules: Rules) -> Iterator[LegacyDatabase]:
    """Open a private copy of the claude-mem database at `path`; the copy goes when the block ends.

    Raises OSError when the file cannot be read, NotClaudeMem when it is something else, snapshot.SourceBusy when a
    program keeps it changing.
    """
    with tempfile.TemporaryDirectory(prefix="claude-mem-") as folder, contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(contextlib.closing(_copy_of(path, Path(folder))))
            found = tables.names(connection)
            _forget_name(connection, Path(folder))
        except sqlite3.DatabaseError as cause:
            raise NotClaudeMem(f"{path} is not a readable SQLite database: {cause}") from cause
        if not found & {SESSIONS, *KIND_OF_TABLE}:
            raise NotClaudeMem(f"{path} holds none of claude-mem's tables")
        yield LegacyDatabase(connection, rules)


def _copy_of(path: Path, folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(snapshot.take(path, folder), isolation_level=None)
    connection.text_factory = lambda content: content.decode(errors="replace")
    return connection


def _forget_name(connection: sqlite3.Connection, folder: Path) -> None:
    """Unlink the open copy: an import that is killed then leaves nobody's memory in a temporary folder."""
    connection.execute("PRAGMA journal_mode = delete")  # takes the log in, so that the file is all there is
    with contextlib.suppress(PermissionError):  # Windows keeps the name of an open file
        for file in folder.iterdir():
            file.unlink()
