"""Imports a claude-mem database into a team, idempotently and in short transactions.

Works on rows that `app.legacy` has read, and knows nothing of files.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Literal, Protocol, TypeVar

from sqlalchemy import Connection

from app.caller import MEMORIES_WRITE, Caller
from app.errors import Invalid
from app.legacy.shapes import (
    OBSERVATIONS,
    PROMPTS,
    SERVER_MEMORIES,
    SERVER_SESSIONS,
    SESSIONS,
    SUMMARIES,
    Failed,
    LegacyId,
    LegacyMemory,
    LegacySession,
    Skipped,
)
from app.services.memories.memories import NewMemory
from app.services.projects.sessions import NewSession
from app.services.transfer import legacy_targets
from app.services.transfer.legacy_targets import ImportTarget
from app.store.database import Database

BATCH: Final = 250
"""Rows per write transaction: other writers wait about 0.1 s for it."""

Noun = Literal["projects", "sessions", "observations", "summaries", "prompts"]
Outcome = Literal["created", "skipped", "failed"]
NOUNS: Final[tuple[Noun, ...]] = ("projects", "sessions", "observations", "summaries", "prompts")

_NOUN_OF_KIND: Final[Mapping[str, Noun]] = {"summary": "summaries", "prompt": "prompts"}
_NOUN_OF_TABLE: Final[Mapping[str, Noun]] = {
    SESSIONS: "sessions",
    SERVER_SESSIONS: "sessions",
    OBSERVATIONS: "observations",
    SUMMARIES: "summaries",
    PROMPTS: "prompts",
    SERVER_MEMORIES: "observations",
}

T = TypeVar("T")
LegacyEntry = LegacySession | LegacyMemory | Skipped | Failed
Progress = Callable[[int], None]
"""Called after each transaction with the number of rows processed so far."""


class LegacySource(Protocol):
    """A claude-mem database as its reader streams it. Every copy of a database has the same `origin`."""

    origin: str

    def sessions(self) -> Iterator[LegacySession | Skipped | Failed]:
        """Yield the outcome of each session row."""

    def memories(self) -> Iterator[LegacyMemory | Skipped | Failed]:
        """Yield the outcome of each memory row."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where rows go: all to `into` if given, else to the project in `project_map`, else to one of the legacy name."""

    project_map: Mapping[str, str] = field(default_factory=dict)
    into: str | None = None

    def name(self, legacy_project: str) -> str:
        """Return the target of a legacy project: an id, a slug or a name."""
        return self.into or self.project_map.get(legacy_project, legacy_project)


@dataclass(frozen=True, slots=True)
class RowWarning:
    """What happened to an unusual legacy row: repaired, skipped or failed."""

    table: str
    id: LegacyId
    message: str


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows were created, skipped (already present or excluded), and failed."""

    created: int
    skipped: int
    failed: int


@dataclass(frozen=True, slots=True)
class LegacyImportReport:
    """What an import did, or would do in a dry run. Every row is in exactly one of the three counts of its noun."""

    origin: str
    dry_run: bool
    counts: Mapping[Noun, Counts]
    warnings: tuple[RowWarning, ...]


def run(
    database: Database,
    caller: Caller,
    source: LegacySource,
    destination: Destination,
    *,
    dry_run: bool,
    progress: Progress,
) -> LegacyImportReport:
    """Import sessions, then memories, and create the projects that they need.

    Existing memories are recognised by origin, table and row id within their project, and by content. If killed, the
    next run continues where it stopped. A dry run writes nothing, but its counts are the same.
    """
    caller.require(MEMORIES_WRITE)
    importing = _Import(database, caller, source.origin, destination, dry_run=dry_run)
    done = 0
    for sessions in _batches(source.sessions()):
        importing.take_sessions(sessions)
        progress(done := done + len(sessions))
    for memories in _batches(source.memories()):
        importing.take_memories(memories)
        progress(done := done + len(memories))
    return importing.report()


class _Import:
    """The state of one run: known projects and sessions, counts and warnings."""

    def __init__(
        self, database: Database, caller: Caller, origin: str, destination: Destination, *, dry_run: bool
    ) -> None:
        self._transaction = database.read if dry_run else database.write
        self._target: ImportTarget = (
            legacy_targets.DryRunTarget(caller) if dry_run else legacy_targets.DatabaseTarget(caller)
        )
        self._caller = caller
        self._origin = origin
        self._destination = destination
        self._dry_run = dry_run
        self._projects: dict[str, str] = {}
        self._sessions: dict[LegacyId, tuple[str, str]] = {}
        self._counted: Counter[tuple[Noun, Outcome]] = Counter()
        self._warnings: list[RowWarning] = []

    def take_sessions(self, batch: Sequence[LegacySession | Skipped | Failed]) -> None:
        kept = [entry for entry in batch if isinstance(entry, LegacySession)]
        self._report_unusual(batch)
        with self._transaction() as connection:
            for entry in kept:
                project_id = self._project(connection, entry.project)
                new = _new_session(entry, project_id, self._origin)
                session_id, is_new = self._target.session(connection, new, entry.completed_at_epoch_ms)
                self._sessions[entry.legacy_id] = (project_id, session_id)
                self._count(entry, "created" if is_new else "skipped")

    def take_memories(self, batch: Sequence[LegacyMemory | Skipped | Failed]) -> None:
        kept = [entry for entry in batch if isinstance(entry, LegacyMemory)]
        self._report_unusual(batch)
        created: Counter[str] = Counter()
        with self._transaction() as connection:
            targeted = [(entry, self._project(connection, entry.project)) for entry in kept]
            known = self._known(connection, targeted)
            for entry, project_id in targeted:
                if (project_id, entry.legacy_table, entry.legacy_id) in known:
                    self._count(entry, "skipped")
                elif self._add(connection, entry, project_id):
                    created[project_id] += 1
            self._target.finish_batch(connection, created)

    def report(self) -> LegacyImportReport:
        counts = {
            noun: Counts(*(self._counted[noun, outcome] for outcome in ("created", "skipped", "failed")))
            for noun in NOUNS
        }
        return LegacyImportReport(self._origin, self._dry_run, counts, tuple(self._warnings))

    def _add(self, connection: Connection, entry: LegacyMemory, project_id: str) -> bool:
        new = _new_memory(entry, project_id, self._session_in(project_id, entry.session_id))
        try:
            is_new = self._target.memory(connection, new, entry, self._origin)
        except Invalid as refusal:
            self._warn(entry, f"failed: {refusal}")
            self._count(entry, "failed")
            return False
        self._count(entry, "created" if is_new else "skipped")
        return is_new

    def _project(self, connection: Connection, legacy_project: str) -> str:
        name = self._destination.name(legacy_project)
        if name not in self._projects:
            self._projects[name], is_new = self._target.project(connection, name)
            self._counted["projects", "created" if is_new else "skipped"] += 1
        return self._projects[name]

    def _session_in(self, project_id: str, legacy_id: LegacyId | None) -> str | None:
        """Return the session of a memory, or None if the memory went to another project: no session spans two."""
        if legacy_id is None:
            return None
        session_project_id, session_id = self._sessions.get(legacy_id, ("", ""))
        return session_id if session_project_id == project_id else None

    def _known(
        self, connection: Connection, targeted: Sequence[tuple[LegacyMemory, str]]
    ) -> set[tuple[str, str, LegacyId]]:
        ids_by_table: defaultdict[tuple[str, str], dict[str, LegacyId]] = defaultdict(dict)
        for entry, project_id in targeted:
            ids_by_table[project_id, entry.legacy_table][str(entry.legacy_id)] = entry.legacy_id
        return {
            (project_id, table, ids[known_id])
            for (project_id, table), ids in ids_by_table.items()
            for known_id in legacy_targets.known_ids(
                connection, self._caller, project_id=project_id, origin=self._origin, table=table, legacy_ids=ids
            )
        }

    def _report_unusual(self, batch: Sequence[LegacyEntry]) -> None:
        for entry in batch:
            match entry:
                case Skipped():
                    self._warn(entry, f"skipped: {entry.reason}")
                    self._count(entry, "skipped")
                case Failed():
                    self._warn(entry, f"failed: {entry.reason}")
                    self._count(entry, "failed")
                case _:
                    for message in entry.warnings:
                        self._warn(entry, message)

    def _count(self, entry: LegacyEntry, outcome: Outcome) -> None:
        kind = entry.kind if isinstance(entry, LegacyMemory) else ""
        self._counted[_NOUN_OF_KIND.get(kind) or _NOUN_OF_TABLE[entry.legacy_table], outcome] += 1

    def _warn(self, entry: LegacyEntry, message: str) -> None:
        self._warnings.append(RowWarning(entry.legacy_table, entry.legacy_id, message))


def _new_session(entry: LegacySession, project_id: str, origin: str) -> NewSession:
    # A session without the id that hooks know it by is identified by its origin.
    external_id = f"{origin}:{entry.legacy_table}:{entry.legacy_id}" if entry.content_session_id is None else None
    return NewSession(
        project_id=project_id,
        external_session_id=external_id,
        content_session_id=entry.content_session_id,
        memory_session_id=entry.memory_session_id,
        platform_source=entry.platform_source,
        title=entry.title,
        metadata=dict(entry.metadata),
        started_at_epoch=entry.started_at_epoch_ms,
    )


def _new_memory(entry: LegacyMemory, project_id: str, session_id: str | None) -> NewMemory:
    is_observation = entry.legacy_table == OBSERVATIONS and isinstance(entry.legacy_id, int)
    return NewMemory(
        project_id=project_id,
        server_session_id=session_id,
        kind=entry.kind,
        type=entry.type,
        legacy_observation_id=int(entry.legacy_id) if is_observation else None,
        title=entry.title,
        subtitle=entry.subtitle,
        text=entry.text,
        narrative=entry.narrative,
        facts=entry.facts,
        concepts=entry.concepts,
        files_read=entry.files_read,
        files_modified=entry.files_modified,
        metadata=dict(entry.metadata),
        platform_source=entry.platform_source,
        created_at_epoch=entry.created_at_epoch_ms,
    )


def _batches(entries: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(entries)
    while batch := list(islice(remaining, BATCH)):
        yield batch
