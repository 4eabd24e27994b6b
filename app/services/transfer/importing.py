"""Imports an export idempotently, in short transactions and constant memory.

Unless ids are kept, each new id is derived from the old one and the target project. So a file that is sent again finds
its own rows, and references need no lookup table with a million pairs.
"""

import hashlib
import re
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
from app.store.engines.disk_map import DiskMap
from app.store.models import agent_events, memory_items, memory_sources, server_sessions
from app.store.models import projects as projects_table
from app.store.prepared import PreparedStatement, prepare_insert
from app.store.records import Memory
from app.store.scope import owned, owned_template, parameters, unscoped

BATCH_ROWS: Final = 250
"""Rows per write transaction: other writers wait about 0.1 s for it."""
BATCH_BYTES: Final = 4 * 1024 * 1024

_WARNINGS_KEPT: Final = 1_000


def _pair(team_id: str, project_id: str) -> tuple[str, str]:
    return team_id, project_id


_INSERT_SESSION: Final = prepare_insert(server_sessions)
_INSERT_EVENT: Final = prepare_insert(agent_events)
_INSERT_SOURCE: Final = prepare_insert(memory_sources)
_SAME_SESSION_KEY: Final = ("project_id", "platform_source", "external_session_id")
_SAME_SOURCE_KEY: Final = ("project_id", "origin", "legacy_table", "legacy_id")
_SAME_SESSION: Final = PreparedStatement(
    owned_template(server_sessions, server_sessions.c.id).where(
        *(server_sessions.c[name] == bindparam(name) for name in _SAME_SESSION_KEY)
    ),
    str,
)
_SAME_EVENT: Final = PreparedStatement(
    owned_template(agent_events, agent_events.c.id).where(
        agent_events.c.project_id == bindparam("project_id"), agent_events.c.event_hash == bindparam("event_hash")
    ),
    str,
)
_SAME_SOURCE: Final = PreparedStatement(
    owned_template(memory_sources, memory_sources.c.id).where(
        *(memory_sources.c[name] == bindparam(name) for name in _SAME_SOURCE_KEY)
    ),
    str,
)
_IS_UUID_7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_BY_ID: Final = {
    table.name: PreparedStatement(
        unscoped(table, table.c.team_id, table.c.project_id).where(table.c.id == bindparam("id")), _pair
    )
    for table in (server_sessions, agent_events, memory_items, memory_sources)
}


@dataclass(frozen=True, slots=True)
class LineWarning:
    """Why a line was left out."""

    line: int
    message: str


@dataclass(slots=True)
class ImportSummary:
    """Sessions, events and memories of an import, by outcome. Only the first 1,000 warnings are kept."""

    created: int = 0
    skipped: int = 0
    failed: int = 0
    warnings: list[LineWarning] = field(default_factory=list)

    def fail(self, line: int, message: str) -> None:
        """Count a line that could not be imported."""
        self.failed += 1
        if len(self.warnings) < _WARNINGS_KEPT:
            self.warnings.append(LineWarning(line, message))


Numbered = tuple[int, Record]
"""A record and the number of its line."""


class Import:
    """One run of an import, fed with the records of a file in order, batch by batch. Close it at the end."""

    def __init__(
        self, database: Database, caller: Caller, *, into_project_id: str | None = None, keep_ids: bool = False
    ) -> None:
        """`into_project_id` receives the only project of the file; otherwise projects are created. Needs team:admin.

        `keep_ids` is reserved for commands on the server: it would reveal to others which ids exist.
        """
        caller.require(TEAM_ADMIN)
        self._database = database
        self._caller = caller
        self._into = into_project_id
        self._keep_ids = keep_ids
        self._existing_ids = DiskMap()
        """The ids under which the project already has rows of the file."""
        self._sessions: set[str] = set()
        self._project_id: str | None = None
        self._projects = 0
        self._has_header = False
        self._is_complete = False
        self.report = ImportSummary()

    def import_batch(self, batch: Sequence[Numbered]) -> None:
        """Import records in one transaction. Raises Invalid for a malformed file, NotFound for a missing project."""
        before = self.report.created
        with self._database.write() as connection:
            for line, record in batch:
                self._import_record(connection, line, record)
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

    def finish(self) -> ImportSummary:
        """Return the summary. Raises Invalid when the file is truncated."""
        if not self._is_complete:
            raise Invalid.field(
                "body",
                "the file is truncated: send the whole file again; rows that are already imported will be skipped",
            )
        return self.report

    def close(self) -> None:
        """Delete the temporary table of references."""
        self._existing_ids.close()

    def _import_record(self, connection: Connection, line: int, record: Record) -> None:
        if not self._has_header:
            self._read_header(record)
        elif isinstance(record, ProjectRecord):
            self._project_id = self._target_project(connection, record)
        elif isinstance(record, End):
            self._is_complete = True
        elif isinstance(record, Header) or self._project_id is None:
            raise Invalid.field("body", f"line {line}: a project record must come first")
        else:
            self._import_row(connection, line, record)

    def _read_header(self, record: Record) -> None:
        if not isinstance(record, Header):
            raise Invalid.field("body", "not a cmem-server export: the first line must be its header")
        if record.version > VERSION:
            raise Invalid.field(
                "body", f"format version {record.version} is newer than {VERSION}, the latest this server supports"
            )
        self._has_header = True

    def _target_project(self, connection: Connection, record: ProjectRecord) -> str:
        """Return the project that receives the next lines."""
        self._projects += 1
        if self._into is None:
            return self._find_or_create_project(connection, record)
        if self._projects > 1:
            raise Invalid.field(
                "body", "the file holds several projects, but only one can be imported into this project"
            )
        projects.get(connection, self._caller, self._into)
        self._adopt_retention(connection, self._into, record)
        return self._into

    def _find_or_create_project(self, connection: Connection, record: ProjectRecord) -> str:
        """Return the team's project with this slug (this id, if ids are kept), created when absent."""
        slug = projects_table.c.slug == record.slug
        is_same = projects_table.c.id == record.id if self._keep_ids else slug
        existing_id = connection.scalar(owned(projects_table, self._caller, projects_table.c.id).where(is_same))
        if existing_id is not None:
            self._adopt_retention(connection, existing_id, record)
            return str(existing_id)
        slugs.require_valid(record.slug)
        self._require_free_path(connection, record.root_path)
        row = msgspec.structs.asdict(record)
        row["retention"] = retention_rules.to_json(retention_rules.validated(record.retention))
        row["id"] = record.id if self._keep_ids else derived_id(self._caller.team_id or "", record.id)
        connection.execute(insert(projects_table).values(**row, team_id=self._caller.team_id))
        return str(row["id"])

    def _require_free_path(self, connection: Connection, root_path: str | None) -> None:
        same = owned(projects_table, self._caller, projects_table.c.id).where(projects_table.c.root_path == root_path)
        if root_path is not None and connection.scalar(same) is not None:
            raise Conflict("Another project of this team already has the root path of a project in the file.")

    def _adopt_retention(self, connection: Connection, project_id: str, record: ProjectRecord) -> None:
        """Copy the retention rules to a project that has none."""
        has_none = (projects_table.c.id == project_id) & (projects_table.c.retention == [])
        if record.retention:
            rules = retention_rules.to_json(retention_rules.validated(record.retention))
            connection.execute(update(projects_table).where(has_none).values(retention=rules))

    def _import_row(self, connection: Connection, line: int, record: Record) -> None:
        try:
            is_new = self._store(connection, record)
        except AppError as refusal:
            self.report.fail(line, str(refusal))
            return
        if is_new is not None:
            self.report.created += is_new
            self.report.skipped += not is_new

    def _store(self, connection: Connection, record: Record) -> bool | None:
        """Store a row; return whether it is new, or None for a record that is not a row of its own."""
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
        if self._exists(connection, "server_sessions", row["id"]):
            return False
        if record.external_session_id is not None:
            values = {**parameters(self._caller), **_select(_SAME_SESSION_KEY, row)}
            existing_id = _SAME_SESSION.first(connection, values)
            if existing_id is not None:
                self._existing_ids.set(row["id"], existing_id)
                return False
        _INSERT_SESSION.run(connection, row)
        return True

    def _event(self, connection: Connection, record: EventRecord) -> bool:
        row = self._row(record)
        row["server_session_id"] = self._session_id(connection, record.server_session_id)
        if self._exists(connection, "agent_events", row["id"]):
            return False
        if _SAME_EVENT.first(connection, {**parameters(self._caller), **_select(("project_id", "event_hash"), row)}):
            return False
        _INSERT_EVENT.run(connection, row)
        return True

    def _memory(self, connection: Connection, record: MemoryRecord) -> bool:
        row = self._row(record)
        del row["sources"]
        if self._exists(connection, "memory_items", row["id"]):
            self._add_sources(connection, row["id"], record.sources)
            return False
        row["server_session_id"] = self._session_id(connection, record.server_session_id)
        row["dedup_scope"] = self._existing_id(record.dedup_scope) if record.dedup_scope else ""
        memory = Memory(**row, seq=0, version=1, superseded_by=None, content_hash="")
        stored, is_new = memories.restore_once(connection, self._caller, memory)
        if not is_new:
            self._existing_ids.set(memory.id, stored.id)
        elif memory.server_session_id is not None:
            self._sessions.add(memory.server_session_id)
        self._add_sources(connection, stored.id, record.sources)
        return is_new

    def _add_sources(self, connection: Connection, memory_id: str, sources: Sequence[SourceRecord]) -> None:
        for source in sources:
            row = {**self._row(source), "memory_item_id": memory_id}
            if _SAME_SOURCE.first(connection, {**parameters(self._caller), **_select(_SAME_SOURCE_KEY, row)}) is None:
                _INSERT_SOURCE.run(connection, row)

    def _supersede(self, connection: Connection, record: SupersessionRecord) -> None:
        old, new = (self._existing_id(each) for each in (record.memory_id, record.superseded_by))
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

    def _existing_id(self, old: str) -> str:
        """Return the id under which the project has a row of the file."""
        new = self._id(old)
        return self._existing_ids.get(new, new)

    def _session_id(self, connection: Connection, old: str | None) -> str | None:
        if old is None:
            return None
        session_id = self._existing_id(old)
        if not self._exists(connection, "server_sessions", session_id):
            raise NotFound("session")
        return session_id

    def _exists(self, connection: Connection, table: str, row_id: str) -> bool:
        """Say whether the project has this row. Raises Conflict when another project has it, if ids are kept."""
        owner = _BY_ID[table].first(connection, {"id": row_id})
        if owner is None:
            return False
        if owner != (self._caller.team_id, self._project_id):
            raise Conflict("This id already exists in another project.")
        return True


def derived_id(parent_id: str, old: str) -> str:
    """Return the id of an imported row: always the same for the same parent, and unrelated for any other.

    It keeps the first half of a UUIDv7, and thus the order of creation; the rest is a digest of both (RFC 9562, 5.8).
    """
    digest = hashlib.sha256(f"{parent_id}\n{old}".encode()).hexdigest()
    head = old[:18] if _IS_UUID_7.fullmatch(old) else f"{digest[48:56]}-{digest[56:60]}-7{digest[60:63]}"
    return f"{head}-{'89ab'[int(digest[0], 16) % 4]}{digest[1:4]}-{digest[4:16]}"


def _select(names: Sequence[str], row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in names}
