"""What works, what does not, and what to do about it. Every look stands alone: one that fails is a finding, too."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from sqlalchemy import func
from sqlalchemy.exc import DBAPIError

from app.caller import server_owner
from app.clock import now_ms
from app.errors import AppError
from app.services.identity import credentials, keys
from app.services.operations.readiness import OK, Readiness
from app.store import outbox
from app.store.database import Database
from app.store.maintenance import REBUILD, dialects, postgresql
from app.store.models import memory_items
from app.store.schema import migrations
from app.store.scope import every
from app.vectors.chroma import server
from app.vectors.errors import OwnedElsewhere, VectorsUnavailable
from app.vectors.index import VectorIndex

State = Literal["ok", "warning", "failed"]

_DAY_MS: Final = 86_400_000
_LATE_MS: Final = 600_000
_LONG_LOG_BYTES: Final = 256 * 1024 * 1024
_LITTLE_ROOM_BYTES: Final = 1024 * 1024 * 1024
_MOSTLY_FREE: Final = 0.5
_BUILT: Final = datetime(2026, 1, 1, tzinfo=UTC)

_CROWDED: Final = 0.8

_START: Final = "start it, or correct CMEM_DATABASE_URL and CMEM_DATABASE_ADMIN_URL"
_RESTORE: Final = "stop the server and run `cmem-server restore` with the newest backup"
_UPGRADE: Final = "run `cmem-server db upgrade`"
_MAINTAIN: Final = "run `cmem-server maintenance run`"
_BACKFILL: Final = "run `cmem-server vectors backfill`"
_RETRY: Final = "run `cmem-server vectors backfill --failed`"
_VERIFY: Final = "run `cmem-server vectors verify`"
_BE_MODEST: Final = (
    "give the server a role that owns nothing (CMEM_DATABASE_URL), keep the owner's for the commands"
    " (CMEM_DATABASE_ADMIN_URL), and run `cmem-server db upgrade`, which grants"
)
_PROBE: Final = "run `cmem-server vectors probe` for the stage that fails"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `remedy` says what to do when it is not ok."""

    what: str
    state: State
    detail: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Patient:
    """What is looked at. `index` None is a server without vectors, by choice.

    `server_url` is the database as the server reaches it, where that is as another role.
    """

    database: Database
    index: VectorIndex | None
    folder: Path
    server_url: str = ""


def examine(patient: Patient) -> Iterator[Finding]:
    """Look at everything, the foundations first; what stands on a broken one is not looked at."""
    database = patient.database
    yield (opened := _attempted("database", lambda: _database(database), _RESTORE))
    if opened.state != "failed":
        yield (revision := _attempted("migrations", lambda: _migrations(database), _UPGRADE))
        if revision.state != "failed":
            yield _attempted("pages", lambda: _pages(database), _RESTORE)
            yield _attempted("foreign keys", lambda: _foreign_keys(database), _RESTORE)
            yield _attempted("triggers", lambda: _triggers(database), REBUILD)
            yield _attempted("full text", lambda: _full_text(database), REBUILD)
            yield _attempted("outbox", lambda: _outbox(database), _RETRY)
            yield _attempted("keys", lambda: _keys(database), "look at `cmem-server keys list`")
            yield _attempted("clock", lambda: _clock(database), "set this machine's clock")
            yield from _of_dialect(patient)
    if database.dialect == "sqlite":
        yield _log(database)
    yield _room(patient.folder)
    if opened.state != "failed":
        yield from _vectors(patient.database, patient.index)


def _of_dialect(patient: Patient) -> Iterator[Finding]:
    database = patient.database
    if database.dialect == "sqlite":
        yield _attempted("free pages", lambda: _free_pages(database), _MAINTAIN)
        return
    yield _attempted("dead rows", lambda: _dead_rows(database), _MAINTAIN)
    yield _attempted("connections", lambda: _connections(database), _START)
    yield _attempted("role", lambda: _role(patient.server_url or database.url), _UPGRADE)


def has_failed(findings: Iterable[Finding]) -> bool:
    """Say whether something does not work; warnings are for later."""
    return any(finding.state == "failed" for finding in findings)


def _attempted(what: str, look: Callable[[], Finding], remedy: str) -> Finding:
    try:
        return look()
    except (AppError, DBAPIError, OSError) as failure:
        return Finding(what, "failed", str(getattr(failure, "orig", failure)), remedy)


def _database(database: Database) -> Finding:
    if database.dialect == "sqlite" and not database.path.exists():
        return Finding("database", "failed", f"there is none at {database.path}", "run `cmem-server serve`")
    readiness = Readiness(database)
    readiness.try_writing()
    state, _ = readiness.of_database()
    if state == OK:
        return Finding("database", "ok", f"{_size(database)}, readable and writable")
    remedies = {"full": "make room on the disk", "read-only": "give this user the right to write", "reached": _START}
    remedy = next((found for word, found in remedies.items() if word in state), None)
    is_outdated = remedy is None and "corrupt" not in state and migrations.current(database.url) != migrations.head()
    if is_outdated:
        return Finding("database", "ok", f"{_size(database)}, readable")
    return Finding("database", "failed", state, remedy or _RESTORE)


def _size(database: Database) -> str:
    return _megabytes(dialects.of(database.dialect).sizes(database)["database"])


def _migrations(database: Database) -> Finding:
    revision, head = migrations.current(database.url), migrations.head()
    if revision == head:
        return Finding("migrations", "ok", f"at revision {revision}")
    migrations.require_known(revision)
    return Finding("migrations", "failed", f"at revision {revision}, needed is {head}", _UPGRADE)


def _pages(database: Database) -> Finding:
    with database.read() as connection:
        found = dialects.of(database.dialect).damaged_pages(connection, limit=3)
        if found:
            return Finding("pages", "failed", "; ".join(" ".join(text.split()) for text in found), _RESTORE)
        is_watched = database.dialect == "sqlite" or postgresql.has_checksums(connection)
    return Finding("pages", "ok", "whole" if is_watched else "checksums are off: damage shows when it is met")


def _foreign_keys(database: Database) -> Finding:
    with database.read() as connection:
        orphans = dialects.of(database.dialect).orphans(connection)
    if not orphans:
        return Finding("foreign keys", "ok", "every row has its parent")
    tables = ", ".join(sorted({table for table, _ in orphans}))
    return Finding("foreign keys", "failed", f"{len(orphans)} rows without their parent, in {tables}", _RESTORE)


def _triggers(database: Database) -> Finding:
    with database.read() as connection:
        differing = dialects.of(database.dialect).differing_objects(connection)
    if differing:
        return Finding("triggers", "failed", f"not as installed: {', '.join(differing)}", REBUILD)
    return Finding("triggers", "ok", "as installed")


def _full_text(database: Database) -> Finding:
    if dialects.of(database.dialect).is_full_text_whole(database):
        return Finding("full text", "ok", "equals the memories")
    return Finding("full text", "failed", "differs from the memories", REBUILD)


def _outbox(database: Database) -> Finding:
    with database.read() as connection:
        backlogs = list(outbox.backlogs(connection).values())
        failures = outbox.failures(connection, None, limit=1)
    failed, pending = sum(each.failed for each in backlogs), sum(each.pending for each in backlogs)
    if failed:
        reason = failures[0].last_error if failures else None
        return Finding("outbox", "failed", f"{failed} memories were set aside, the first for: {reason}", _RETRY)
    oldest = min((each.oldest_enqueued_at_epoch or now_ms() for each in backlogs), default=now_ms())
    if (late_ms := now_ms() - oldest) > _LATE_MS:
        detail = f"{pending} memories wait for their vectors, since {late_ms // 60_000} minutes"
        return Finding("outbox", "warning", detail, "start the server, or look at `cmem-server vectors probe`")
    return Finding("outbox", "ok", f"{pending} memories wait for their vectors")


def _keys(database: Database) -> Finding:
    with database.read() as connection:
        found = keys.worth_a_look(connection, server_owner())
    if not found:
        return Finding("keys", "ok", "none expires within 7 days, none was unused for 90")
    named = ", ".join(f"{credentials.prefix_of(key.public_id)} ({keys.state(key)})" for key in found[:5])
    remedy = "run `cmem-server keys rotate` or `cmem-server keys revoke`"
    return Finding("keys", "warning", f"{len(found)} expire within 7 days or were unused for 90: {named}", remedy)


def _clock(database: Database) -> Finding:
    with database.read() as connection:
        newest = connection.scalar(every(memory_items, func.max(memory_items.c.updated_at_epoch))) or 0
    now = now_ms()
    shown = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="seconds")
    if now < _BUILT.timestamp() * 1000 or newest > now + _DAY_MS:
        return Finding("clock", "warning", f"{shown} is before what is stored here", "set this machine's clock")
    return Finding("clock", "ok", shown)


def _free_pages(database: Database) -> Finding:
    with database.read() as connection:
        free, pages = dialects.of(database.dialect).free_share(connection)
    if pages > 10_000 and free / pages > _MOSTLY_FREE:
        return Finding("free pages", "warning", f"{free / pages:.0%} of the file is free", _MAINTAIN)
    return Finding("free pages", "ok", f"{free} of {pages}")


def _log(database: Database) -> Finding:
    size = dialects.of(database.dialect).sizes(database).get("wal", 0)
    if size > _LONG_LOG_BYTES:
        return Finding("log", "warning", f"{_megabytes(size)} are not folded in", _MAINTAIN)
    return Finding("log", "ok", _megabytes(size))


def _dead_rows(database: Database) -> Finding:
    with database.read() as connection:
        dead, rows = postgresql.free_share(connection)
    if rows > 10_000 and dead / rows > _MOSTLY_FREE:
        return Finding("dead rows", "warning", f"{dead / rows:.0%} of the rows are dead", _MAINTAIN)
    return Finding("dead rows", "ok", f"{dead} of {rows}")


def _connections(database: Database) -> Finding:
    with database.read() as connection:
        used, allowed = postgresql.connections(connection)
    if used > allowed * _CROWDED:
        remedy = "lower CMEM_DATABASE_CONNECTIONS, raise max_connections, or put PgBouncer before it"
        return Finding("connections", "warning", f"{used} of {allowed} are in use", remedy)
    return Finding("connections", "ok", f"{used} of {allowed} are in use")


def _role(server_url: str) -> Finding:
    """Look at the database as the server does."""
    with closing(Database(server_url, readers=1, writers=1)) as served:
        readiness = Readiness(served)
        readiness.try_writing()
        state, _ = readiness.of_database()
        if state != OK:
            return Finding("role", "failed", f"for the server's it is {state}", _UPGRADE)
        with served.read() as connection:
            role, powers = postgresql.powers(connection)
    if powers:
        return Finding("role", "warning", f"the server's, {role}, {', '.join(powers)}", _BE_MODEST)
    return Finding("role", "ok", f"the server's, {role}, owns nothing and bypasses nothing")


def _room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder if folder.exists() else folder.absolute().anchor).free
    if free < _LITTLE_ROOM_BYTES:
        return Finding("disk", "warning", f"only {_megabytes(free)} are free", "make room on the disk")
    return Finding("disk", "ok", f"{_megabytes(free)} free")


def _vectors(database: Database, index: VectorIndex | None) -> Iterator[Finding]:
    if index is None:
        yield Finding("vectors", "ok", "off, by choice")
        return
    if index.mode == "embedded":
        yield _open_files()
    try:
        index.collections.connect()
    except OwnedElsewhere as owned:
        yield Finding("vectors", "ok", f"{owned} Ask it with vectors/status?deep=1")
        return
    except VectorsUnavailable as failure:
        yield Finding("vectors", "failed", str(failure), _PROBE)
        return
    probed = index.probe()
    if probed.ok:
        yield Finding("embedder", "ok", index.embedder.model_id)
        yield _mirrored(database, index)
    elif probed.stage == "embed":
        yield Finding("embedder", "failed", probed.error or "", "check CMEM_EMBEDDER and its settings")
    else:
        yield Finding("vectors", "failed", f"{probed.stage}: {probed.error}", _PROBE)


def _open_files() -> Finding:
    allowed = server.raise_open_files_limit()
    if allowed < server.OPEN_FILES_NEEDED:
        detail = f"{allowed} are allowed, the vector index needs {server.OPEN_FILES_NEEDED}"
        return Finding("open files", "warning", detail, "raise the hard limit, `ulimit -Hn`")
    return Finding("open files", "ok", f"{allowed} are allowed")


def _mirrored(database: Database, index: VectorIndex) -> Finding:
    """Compare collections with projects. What waits in the outbox is on its way, and no fault."""
    try:
        survey = index.repair.survey()
    except VectorsUnavailable as failure:
        return Finding("vectors", "failed", str(failure), _PROBE)
    with database.read() as connection:
        waiting = outbox.backlogs(connection)
    lost = [project_id for project_id in survey.empty if project_id not in waiting]
    if lost:
        return Finding("vectors", "failed", f"{len(lost)} projects have none", _BACKFILL)
    if survey.ownerless and index.mode == "embedded":  # on a shared server they may be another installation's
        detail = f"{len(survey.ownerless)} collections are of no project here"
        return Finding("vectors", "warning", detail, _VERIFY)
    if survey.other_model:
        detail = f"{len(survey.other_model)} projects have those of another model"
        return Finding("vectors", "warning", detail, "run `cmem-server vectors rebuild`")
    return Finding("vectors", "ok", "every project has its collection")


def _megabytes(size: int) -> str:
    return f"{size / 1024 / 1024:,.1f} MB"
