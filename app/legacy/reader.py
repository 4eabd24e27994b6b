"""Opens a claude-mem database and streams its sessions and memories, each row as one outcome.

Decides which rows belong together and which to skip. Files belong to snapshot, SQL to tables, columns to row_mapping.
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
    ReaderOptions,
    Skipped,
)


class NotClaudeMem(Exception):
    """The file is not an SQLite database, or has none of claude-mem's tables."""


class LegacyDatabase:
    """A private copy of a claude-mem database, open for reading. `origin` identifies the original."""

    def __init__(self, connection: sqlite3.Connection, options: ReaderOptions) -> None:
        self.origin = origin.identify(connection)
        self._connection = connection
        self._options = options
        self._projects = _project_names(connection)
        self._sessions = _SessionIndex()
        for entry in self._read_sessions():
            if isinstance(entry, LegacySession):
                self._sessions.add(entry)

    def count(self, table: str) -> int:
        """Return the number of rows in one of claude-mem's tables, 0 if it is absent or damaged."""
        with contextlib.suppress(sqlite3.DatabaseError):
            return tables.count(self._connection, table)
        return 0

    def sessions(self) -> Iterator[LegacySession | Skipped | Failed]:
        """Yield every session, table by table in its original order."""
        for entry in self._read_sessions():
            if isinstance(entry, LegacySession) and self._is_internal(entry.project):
                yield Skipped(entry.legacy_table, entry.legacy_id, "internal to claude-mem")
            else:
                yield entry

    def memories(self) -> Iterator[LegacyMemory | Skipped | Failed]:
        """Yield every prompt, observation, summary and memory item, table by table in its original order.

        Memory use grows with the number of sessions only.
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

    def _rows(self, table: str) -> Iterator[tables.LegacyRow | Failed]:
        for row in tables.rows(self._connection, table):
            if isinstance(row, tables.LegacyRow) and (project_id := row.text("project_id")):
                row.supply("project", self._projects.get(project_id, project_id))
            yield row

    def _memories_of(self, table: str) -> Iterator[LegacyMemory | Skipped | Failed]:
        duplicates = _Duplicates(self._connection)
        previous_ms = 0
        for row in self._rows(table):
            if isinstance(row, Failed):
                yield row
                continue
            entry = row_mapping.memory(row, self._sessions.of(row), previous_ms=previous_ms)
            previous_ms = entry.created_at_epoch_ms
            reason = self._reason_to_skip(row, entry, duplicates)
            yield Skipped(table, row.legacy_id, reason) if reason else entry

    def _reason_to_skip(self, row: tables.LegacyRow, entry: LegacyMemory, duplicates: "_Duplicates") -> str | None:
        if self._is_internal(entry.project):
            return "internal to claude-mem"
        if row.text("origin_device_id") and not self._options.other_devices:
            return "copied from another device"
        if row_mapping.is_empty(entry):
            return "empty"
        observation_id = row.number("legacy_observation_id")
        if observation_id is not None and tables.holds(self._connection, OBSERVATIONS, observation_id):
            return f"a copy of observation {observation_id}"
        if row.table == OBSERVATIONS:
            first_id = duplicates.first_id(row)
            return None if first_id == row.legacy_id else f"duplicate of row {first_id}"
        return None

    def _is_internal(self, project: str) -> bool:
        return project == INTERNAL_PROJECT and not self._options.internal


def _project_names(connection: sqlite3.Connection) -> dict[str, str]:
    rows = [row for row in tables.rows(connection, SERVER_PROJECTS) if isinstance(row, tables.LegacyRow)]
    return {str(row.legacy_id): name for row in rows if (name := row.text("name"))}


class _SessionIndex:
    """Finds the session of a memory row. If several sessions share an id, the oldest is used."""

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

    def of(self, row: tables.LegacyRow) -> row_mapping.SessionKey | None:
        return (
            self._by_id.get(row.number("session_db_id") or row.text("server_session_id") or "")
            or self._by_memory_id.get(row.text("memory_session_id") or "")
            or self._by_content_id.get(row.text("content_session_id") or "")
        )


class _Duplicates:
    """Stores the identity of each observation in a temporary table, so that memory does not grow with the rows."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute("DROP TABLE IF EXISTS temp.seen")
        connection.execute("CREATE TEMP TABLE seen (identity BLOB PRIMARY KEY, id) WITHOUT ROWID")

    def first_id(self, row: tables.LegacyRow) -> LegacyId:
        """Return the id of the first row with the same identity, which is the row's own id if it is new."""
        key = row_mapping.identity(row)
        added = self._connection.execute("INSERT OR IGNORE INTO temp.seen VALUES (?, ?)", (key, row.legacy_id))
        if added.rowcount:
            return row.legacy_id
        first: tuple[LegacyId] = self._connection.execute(
            "SELECT id FROM temp.seen WHERE identity = ?", (key,)
        ).fetchone()
        return first[0]


@contextlib.contextmanager
def open_copy(path: Path, options: ReaderOptions) -> Iterator[LegacyDatabase]:
    """Open a private copy of the claude-mem database at `path`; it is deleted at the end of the block.

    Raises OSError if the file cannot be read, NotClaudeMem if it is something else, and snapshot.SourceBusy if another
    program keeps changing it.
    """
    with tempfile.TemporaryDirectory(prefix="claude-mem-") as folder, contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(contextlib.closing(_copy_of(path, Path(folder))))
            names = tables.names(connection)
            _unlink_copy(connection, Path(folder))
        except sqlite3.DatabaseError as cause:
            raise NotClaudeMem(f"{path} is not a readable SQLite database: {cause}") from cause
        if not names & {SESSIONS, *KIND_OF_TABLE}:
            raise NotClaudeMem(f"{path} has none of claude-mem's tables")
        yield LegacyDatabase(connection, options)


def _copy_of(path: Path, folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(snapshot.take(path, folder), isolation_level=None)
    connection.text_factory = lambda content: content.decode(errors="replace")
    return connection


def _unlink_copy(connection: sqlite3.Connection, folder: Path) -> None:
    """Unlink the open copy, so that a killed import leaves no private data in a temporary folder."""
    connection.execute("PRAGMA journal_mode = delete")  # checkpoints the WAL, so that the data is in one file
    with contextlib.suppress(PermissionError):  # Windows keeps the name of an open file
        for file in folder.iterdir():
            file.unlink()
