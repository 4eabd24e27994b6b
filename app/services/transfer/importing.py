"""Brings an export back in: each row once however often it is run, in short transactions, at constant memory.

Where ids are not kept, each new id is derived from the old one and the project that takes it in. So a file that is sent
again finds its own rows, and references need no table of a million pairs.
"""

import hashlib
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam, insert, update

from app.caller import TEAM_ADMIN, Caller
from app.errors import AppError, Conflict, Invalid, NotFound
from app.services.audit import entries
from app.services.deletion import retention_rules
from app.services.memories import context_text, memories
from app.services.projects import projects
from app.services.shared import slugs
from app.services.transfer.transfer_records import (
    VERSION,
    End,
    EventRecord,
    Header,
    MemoryRecord,
    ProjectRecord,
    Record,
    SessionRecord,
    SourceRecord,
    SupersessionRecord,
)
from app.store.database import Database
from app.store.models import agent_events, memory_items, memory_sources, server_sessions
from app.store.models import projects as projects_table
from app.store.prepared import Prepared, inserting
from app.store.records import Memory
from app.store.scope import every, owned, owned_template, parameters

BATCH_ROWS: Final = 250
"""Rows in one write transaction: others wait about 0.1 s for it."""
BATCH_BYTES: Final = 4 * 1024 * 1024

_WARNINGS_KEPT: Final = 1_000


def _pair(team_id: str, project_id: str) -> tuple[str, str]:
    return team_id, project_id


_INSERT_SESSION: Final = inserting(server_sessions)
_INSERT_EVENT: Final = inserting(agent_events)
_INSERT_SOURCE: Final = inserting(memory_sources)
_SAME_SESSION_KEY: Final = ("project_id", "platform_source", "external_session_id")
_SAME_SOURCE_KEY: Final = ("project_id", "origin", "legacy_table", "legacy_id")
_SAME_SESSION: Final = Prepared(
    owned_template(server_sessions, server_sessions.c.id).where(
        *(server_sessions.c[name] == bindparam(name) for name in _SAME_SESSION_KEY)
    ),
    str,
)
_SAME_EVENT: Final = Prepared(
    owned_template(agent_events, agent_events.c.id).where(
        agent_events.c.project_id == bindparam("project_id"), agent_events.c.event_hash == bindparam("event_hash")
    ),
    str,
)
_SAME_SOURCE: Final = Prepared(
    owned_template(memory_sources, memory_sources.c.id).where(
        *(memory_sources.c[name] == bindparam(name) for name in _SAME_SOURCE_KEY)
    ),
    str,
)
_IS_UUID_7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_BY_ID: Final = {
    table.name: Prepared(every(table, table.c.team_id, table.c.project_id).where(table.c.id == bindparam("id")), _pair)
    for table in (server_sessions, agent_events, memory_items, memory_sources)
}


@dataclass(frozen=True, slots=True)
class LineWarning:
    """What is wrong with one line, which was left out."""

    line: int
    message: str


@dataclass(slots=True)
class Report:
    """What an import did: sessions, events and memories by their outcome. Only the first warnings are kept."""

    created: int = 0
    skipped: int = 0
    failed: int = 0
    warnings: list[LineWarning] = field(default_factory=list)

    def fail(self, line: int, message: str) -> None:
        """Count a line that could not be brought in."""
        self.failed += 1
        if len(self.warnings) < _WARNINGS_KEPT:
            self.warnings.append(LineWarning(line, message))


Numbered = tuple[int, Record]
"""A record and the number of its line."""


class _Twins:
    """Rows of the file that the project has under another id. On disk once they are many: memory stays constant."""

    def __init__(self) -> None:
        self._pairs = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._pairs.execute("CREATE TABLE twins (id TEXT PRIMARY KEY, standing_id TEXT) WITHOUT ROWID")
        self._pairs.execute("BEGIN")

    def add(self, row_id: str, standing_id: str) -> None:
        self._pairs.execute("INSERT OR REPLACE INTO twins VALUES (?, ?)", (row_id, standing_id))

    def standing(self, row_id: str) -> str:
        found = self._pairs.execute("SELECT standing_id FROM twins WHERE id = ?", (row_id,)).fetchone()
        return str(found[0]) if found else row_id

    def close(self) -> None:
        self._pairs.close()


class Import:
    """One run. Takes the records of a file in their order, batch by batch; close it at the end."""

    def __init__(
        self, database: Database, caller: Caller, *, into_project_id: str | None = None, keep_ids: bool = False
    ) -> None:
        """`into_project_id` takes the one project of a file; else projects are made. Needs team:admin.

        `keep_ids` is for commands of the server's owner only: it would tell anybody else which ids exist.
        """
        caller.require(TEAM_ADMIN)
        self._database = database
        self._caller = caller
        self._into = into_project_id
        self._keep_ids = keep_ids
        self._twins = _Twins()
        self._sessions: set[str] = set()
        self._project_id: str | None = None
        self._projects = 0
        self._has_header = False
        self._is_complete = False
        self.report = Report()

    def take(self, batch: Sequence[Numbered]) -> None:
        """Bring records in, in one transaction. Invalid when this is no export, NotFound when the project is gone."""
        before = self.report.created
        with self._database.write() as connection:
            for line, record in batch:
                self._take(connection, line, record)
            while self._sessions:
                context_text.refresh_session(connection, self._sessions.pop())
            if (created := self.report.created - before) and self._project_id is not None:
                target = ("project", self._project_id)
                entries.record(
                    connection,
                    self._caller,
                    "project.import",
                    target=target,
                    project_id=self._project_id,
                    count=created,
                )

    def finish(self) -> Report:
        """Return what was done; Invalid when the file was cut off."""
        if not self._is_complete:
            raise Invalid.field("body", "the file ends early: what came before is in, send the whole file again")
        return self.report

    def close(self) -> None:
        """Forget what was only needed for references."""
        self._twins.close()

    def _take(self, connection: Connection, line: int, record: Record) -> None:
        if not self._has_header:
            self._begin(record)
        elif isinstance(record, ProjectRecord):
            self._project_id = self._enter(connection, record)
        elif isinstance(record, End):
            self._is_complete = True
        elif isinstance(record, Header) or self._project_id is None:
            raise Invalid.field("body", f"line {line}: a project's line must come first")
        else:
            self._bring(connection, line, record)

    def _begin(self, record: Record) -> None:
        if not isinstance(record, Header):
            raise Invalid.field("body", "not an export of cmem-server: the first line must be its header")
        if record.version > VERSION:
            raise Invalid.field("body", f"format version {record.version} is newer than {VERSION}, which is known here")
        self._has_header = True

    def _enter(self, connection: Connection, record: ProjectRecord) -> str:
        """Return the project that takes the next lines."""
        self._projects += 1
        if self._into is None:
            return self._project(connection, record)
        if self._projects > 1:
            raise Invalid.field("body", "the file holds several projects, and only one can go into this one")
        projects.get(connection, self._caller, self._into)
        self._adopt_rules(connection, self._into, record)
        return self._into

    def _project(self, connection: Connection, record: ProjectRecord) -> str:
        """Return the team's project of this slug (of this id with kept ids), made as it was when it is absent."""
        slug = projects_table.c.slug == record.slug
        known = projects_table.c.id == record.id if self._keep_ids else slug
        standing = connection.scalar(owned(projects_table, self._caller, projects_table.c.id).where(known))
        if standing is not None:
            self._adopt_rules(connection, standing, record)
            return str(standing)
        slugs.validated(record.slug)
        self._require_free_path(connection, record.root_path)
        row = msgspec.structs.asdict(record)
        row["retention"] = retention_rules.stored(retention_rules.checked(record.retention))
        row["id"] = record.id if self._keep_ids else derived_id(self._caller.team_id or "", record.id)
        connection.execute(insert(projects_table).values(**row, team_id=self._caller.team_id))
        return str(row["id"])

    def _require_free_path(self, connection: Connection, root_path: str | None) -> None:
        same = owned(projects_table, self._caller, projects_table.c.id).where(projects_table.c.root_path == root_path)
        if root_path is not None and connection.scalar(same) is not None:
            raise Conflict("Another project of this team has the root path of a project in the file.")

    def _adopt_rules(self, connection: Connection, project_id: str, record: ProjectRecord) -> None:
        """Take the rules of retention over where there are none."""
        has_none = (projects_table.c.id == project_id) & (projects_table.c.retention == [])
        if record.retention:
            rules = retention_rules.stored(retention_rules.checked(record.retention))
            connection.execute(update(projects_table).where(has_none).values(retention=rules))

    def _bring(self, connection: Connection, line: int, record: Record) -> None:
        try:
            is_new = self._store(connection, record)
        except AppError as refusal:
            self.report.fail(line, str(refusal))
            return
        if is_new is not None:
            self.report.created += is_new
            self.report.skipped += not is_new

    def _store(self, connection: Connection, record: Record) -> bool | None:
        """Store a row; say whether it is new, None for what is no row of its own."""
        match record:
            case SessionRecord():
                return self._session(connection, record)
            case EventRecord():
                return self._event(connection, record)
            case MemoryRecord():
                return self._memory(connection, record)
            case SupersessionRecord():
                self._supersede(connection, record)
        return None

    def _session(self, connection: Connection, record: SessionRecord) -> bool:
        row = self._row(record)
        if self._stands(connection, "server_sessions", row["id"]):
            return False
        if record.external_session_id is not None:
            standing = _SAME_SESSION.first(connection, {**parameters(self._caller), **_named(_SAME_SESSION_KEY, row)})
            if standing is not None:
                self._twins.add(row["id"], standing)
                return False
        _INSERT_SESSION.run(connection, row)
        return True

    def _event(self, connection: Connection, record: EventRecord) -> bool:
        row = self._row(record)
        row["server_session_id"] = self._session_id(connection, record.server_session_id)
        if self._stands(connection, "agent_events", row["id"]):
            return False
        if _SAME_EVENT.first(connection, {**parameters(self._caller), **_named(("project_id", "event_hash"), row)}):
            return False
        _INSERT_EVENT.run(connection, row)
        return True

    def _memory(self, connection: Connection, record: MemoryRecord) -> bool:
        row = self._row(record)
        del row["sources"]
        if self._stands(connection, "memory_items", row["id"]):
            self._add_sources(connection, row["id"], record.sources)
            return False
        row["server_session_id"] = self._session_id(connection, record.server_session_id)
        row["dedup_scope"] = self._twins.standing(self._id(record.dedup_scope)) if record.dedup_scope else ""
        memory = Memory(**row, seq=0, version=1, superseded_by=None, content_hash="")
        stored, is_new = memories.restore_once(connection, self._caller, memory)
        if not is_new:
            self._twins.add(memory.id, stored.id)
        elif memory.server_session_id is not None:
            self._sessions.add(memory.server_session_id)
        self._add_sources(connection, stored.id, record.sources)
        return is_new

    def _add_sources(self, connection: Connection, memory_id: str, sources: Sequence[SourceRecord]) -> None:
        for source in sources:
            row = {**self._row(source), "memory_item_id": memory_id}
            if _SAME_SOURCE.first(connection, {**parameters(self._caller), **_named(_SAME_SOURCE_KEY, row)}) is None:
                _INSERT_SOURCE.run(connection, row)

    def _supersede(self, connection: Connection, record: SupersessionRecord) -> None:
        old, new = (self._twins.standing(self._id(each)) for each in (record.memory_id, record.superseded_by))
        of_project = memory_items.c.project_id == self._project_id
        replacement = owned(memory_items, self._caller, memory_items.c.id).where(of_project, memory_items.c.id == new)
        if connection.scalar(replacement) is None or old == new:
            raise NotFound("memory")
        this = (memory_items.c.id == old) & of_project & memory_items.c.superseded_by.is_(None)
        connection.execute(update(memory_items).where(this).values(superseded_by=new))

    def _row(self, record: msgspec.Struct) -> dict[str, Any]:
        row = msgspec.structs.asdict(record)
        return {**row, "id": self._id(row["id"]), "team_id": self._caller.team_id, "project_id": self._project_id}

    def _id(self, old: str) -> str:
        return old if self._keep_ids else derived_id(self._project_id or "", old)

    def _session_id(self, connection: Connection, old: str | None) -> str | None:
        if old is None:
            return None
        session_id = self._twins.standing(self._id(old))
        if not self._stands(connection, "server_sessions", session_id):
            raise NotFound("session")
        return session_id

    def _stands(self, connection: Connection, table: str, row_id: str) -> bool:
        """Say whether the project has this row; Invalid when the id is another's, which only kept ids can meet."""
        found = _BY_ID[table].first(connection, {"id": row_id})
        if found is None:
            return False
        if found != (self._caller.team_id, self._project_id):
            raise Conflict("Its id is taken by a row of another project.")
        return True


def derived_id(taken_in_by: str, old: str) -> str:
    """Return the id of a row that comes in again: always the same for the same place, and nothing for any other.

    It keeps the first half of a UUIDv7, and so the order of creation; the rest is a digest of both (RFC 9562, 5.8).
    """
    digest = hashlib.sha256(f"{taken_in_by}\n{old}".encode()).hexdigest()
    head = old[:18] if _IS_UUID_7.fullmatch(old) else f"{digest[48:56]}-{digest[56:60]}-7{digest[60:63]}"
    return f"{head}-{'89ab'[int(digest[0], 16) % 4]}{digest[1:4]}-{digest[4:16]}"


def _named(names: Sequence[str], row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in names}
