"""Health checks of an installation: what works, what does not, and how to fix it.

A check that cannot even run counts as failed.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sqlalchemy import func
from sqlalchemy.exc import DBAPIError

from app.caller import server_owner
from app.clock import now_ms
from app.errors import AppError
from app.services.identity import credentials, keys
from app.services.operations.readiness import OK, Readiness
from app.store import outbox
from app.store.database import Database
from app.store.maintenance import REBUILD, dialects
from app.store.maintenance.checks import CheckResult, megabytes
from app.store.models import memory_items
from app.store.schema import migrations
from app.store.scope import unscoped
from app.vectors.chroma import server
from app.vectors.errors import OwnedElsewhere, VectorsUnavailable
from app.vectors.index import VectorIndex

_DAY_MS: Final = 86_400_000
_LATE_MS: Final = 600_000
_LOW_DISK_BYTES: Final = 1024 * 1024 * 1024
_EARLIEST_CLOCK: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Before this version was written: a clock that shows less is wrong."""

_START: Final = "start it, or correct CMEM_DATABASE_URL and CMEM_DATABASE_ADMIN_URL"
_RESTORE: Final = "stop the server and run `cmem-server restore` with the newest backup"
_UPGRADE: Final = "run `cmem-server db upgrade`"
_BACKFILL: Final = "run `cmem-server vectors backfill`"
_RETRY: Final = "run `cmem-server vectors backfill --failed`"
_VERIFY: Final = "run `cmem-server vectors verify`"
_LEAST_PRIVILEGE: Final = (
    "give the server a role that owns nothing (CMEM_DATABASE_URL), keep the owner's for the commands"
    " (CMEM_DATABASE_ADMIN_URL), and run `cmem-server db upgrade`, which grants its privileges"
)
_PROBE: Final = "run `cmem-server vectors probe` to see which stage fails"
_SET_CLOCK: Final = "set this machine's clock"


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """The installation to check. `index` is None when vectors are switched off.

    `server_url` is the server's own database URL, where it connects as another role than the owner.
    """

    database: Database
    index: VectorIndex | None
    folder: Path
    server_url: str = ""


def run_checks(context: DoctorContext) -> Iterator[CheckResult]:
    """Run every check, the fundamental ones first; checks that depend on one that failed are left out."""
    database = context.database
    yield (opened := _attempt("database", lambda: _database(database), _RESTORE))
    if opened.state != "failed":
        yield (revision := _attempt("migrations", lambda: _migrations(database), _UPGRADE))
        if revision.state != "failed":
            yield _attempt("pages", lambda: _pages(database), _RESTORE)
            yield _attempt("foreign keys", lambda: _foreign_keys(database), _RESTORE)
            yield _attempt("triggers", lambda: _triggers(database), REBUILD)
            yield _attempt("full text", lambda: _full_text(database), REBUILD)
            yield _attempt("outbox", lambda: _outbox(database), _RETRY)
            yield _attempt("keys", lambda: _keys(database), "look at `cmem-server keys list`")
            yield _attempt("clock", lambda: _clock(database), _SET_CLOCK)
            yield from _dialect_checks(context)
    for check in dialects.checks_of(database.dialect).file_checks(database):
        yield check.run()
    yield _disk(context.folder)
    if opened.state != "failed":
        yield from _vectors(database, context.index)


def has_failed(results: Iterable[CheckResult]) -> bool:
    """Say whether any check failed; warnings do not count."""
    return any(result.state == "failed" for result in results)


def _dialect_checks(context: DoctorContext) -> Iterator[CheckResult]:
    database = context.database
    checks = dialects.checks_of(database.dialect)
    for check in checks.content_checks(database):
        yield _attempt(check.name, check.run, check.remedy)
    if checks.HAS_ROLES:
        yield _attempt("role", lambda: _role(context.server_url or database.url), _UPGRADE)


def _attempt(what: str, run: Callable[[], CheckResult], remedy: str) -> CheckResult:
    try:
        return run()
    except (AppError, DBAPIError, OSError) as failure:
        return CheckResult(what, "failed", str(getattr(failure, "orig", failure)), remedy)


def _database(database: Database) -> CheckResult:
    missing = dialects.checks_of(database.dialect).missing_file(database)
    if missing is not None:
        return CheckResult("database", "failed", f"{missing} does not exist", "run `cmem-server serve`")
    readiness = Readiness(database)
    readiness.try_writing()
    state, _ = readiness.of_database()
    if state == OK:
        return CheckResult("database", "ok", f"{_size(database)}, readable and writable")
    remedies = {"full": "free disk space", "read-only": "give this user write access", "reached": _START}
    remedy = next((action for word, action in remedies.items() if word in state), None)
    is_outdated = remedy is None and "corrupt" not in state and migrations.current(database.url) != migrations.head()
    if is_outdated:
        return CheckResult("database", "ok", f"{_size(database)}, readable")
    return CheckResult("database", "failed", state, remedy or _RESTORE)


def _size(database: Database) -> str:
    return megabytes(dialects.of(database.dialect).sizes(database)["database"])


def _migrations(database: Database) -> CheckResult:
    revision, head = migrations.current(database.url), migrations.head()
    if revision == head:
        return CheckResult("migrations", "ok", f"at revision {revision}")
    migrations.require_known(revision)
    return CheckResult("migrations", "failed", f"at revision {revision}, expected {head}", _UPGRADE)


def _pages(database: Database) -> CheckResult:
    with database.read() as connection:
        damaged = dialects.of(database.dialect).damaged_pages(connection, limit=3)
        if damaged:
            return CheckResult("pages", "failed", "; ".join(" ".join(text.split()) for text in damaged), _RESTORE)
        is_reliable = dialects.checks_of(database.dialect).detects_damaged_pages(connection)
    return CheckResult("pages", "ok", "intact" if is_reliable else "checksums are off: damage shows only on access")


def _foreign_keys(database: Database) -> CheckResult:
    with database.read() as connection:
        orphans = dialects.of(database.dialect).orphans(connection)
    if not orphans:
        return CheckResult("foreign keys", "ok", "no orphan rows")
    tables = ", ".join(sorted({table for table, _ in orphans}))
    return CheckResult("foreign keys", "failed", f"{len(orphans)} orphan rows in {tables}", _RESTORE)


def _triggers(database: Database) -> CheckResult:
    with database.read() as connection:
        differing = dialects.of(database.dialect).differing_objects(connection)
    if differing:
        return CheckResult("triggers", "failed", f"not as installed: {', '.join(differing)}", REBUILD)
    return CheckResult("triggers", "ok", "as installed")


def _full_text(database: Database) -> CheckResult:
    if dialects.of(database.dialect).is_full_text_intact(database):
        return CheckResult("full text", "ok", "matches the memories")
    return CheckResult("full text", "failed", "differs from the memories", REBUILD)


def _outbox(database: Database) -> CheckResult:
    with database.read() as connection:
        backlogs = list(outbox.backlogs(connection).values())
        failures = outbox.failures(connection, None, limit=1)
    failed, pending = sum(each.failed for each in backlogs), sum(each.pending for each in backlogs)
    if failed:
        reason = failures[0].last_error if failures else None
        return CheckResult("outbox", "failed", f"{failed} memories were set aside; first error: {reason}", _RETRY)
    oldest = min((each.oldest_enqueued_at_epoch or now_ms() for each in backlogs), default=now_ms())
    if (late_ms := now_ms() - oldest) > _LATE_MS:
        detail = f"{pending} memories have been waiting for their vectors for up to {late_ms // 60_000} minutes"
        return CheckResult("outbox", "warning", detail, "start the server, or run `cmem-server vectors probe`")
    return CheckResult("outbox", "ok", f"{pending} memories are waiting for their vectors")


def _keys(database: Database) -> CheckResult:
    with database.read() as connection:
        doubtful = keys.needing_attention(connection, server_owner())
    if not doubtful:
        return CheckResult("keys", "ok", "none expires within 7 days or has been unused for 90")
    named = ", ".join(f"{credentials.prefix_of(key.public_id)} ({keys.state(key)})" for key in doubtful[:5])
    detail = f"{len(doubtful)} expire within 7 days or have been unused for 90: {named}"
    return CheckResult("keys", "warning", detail, "run `cmem-server keys rotate` or `cmem-server keys revoke`")


def _clock(database: Database) -> CheckResult:
    with database.read() as connection:
        newest = connection.scalar(unscoped(memory_items, func.max(memory_items.c.updated_at_epoch))) or 0
    now = now_ms()
    shown = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="seconds")
    if now < _EARLIEST_CLOCK.timestamp() * 1000 or newest > now + _DAY_MS:
        return CheckResult("clock", "warning", f"{shown} is earlier than the newest stored memory", _SET_CLOCK)
    return CheckResult("clock", "ok", shown)


def _role(server_url: str) -> CheckResult:
    """Check the database as the server sees it."""
    with closing(Database(server_url, readers=1, writers=1)) as database:
        readiness = Readiness(database)
        readiness.try_writing()
        state, _ = readiness.of_database()
        if state != OK:
            return CheckResult("role", "failed", f"for the server's role the database is {state}", _UPGRADE)
        with database.read() as connection:
            role = dialects.checks_of(database.dialect).role(connection)
    if role.privileges:
        return CheckResult("role", "warning", f"role {role.name} {', '.join(role.privileges)}", _LEAST_PRIVILEGE)
    return CheckResult("role", "ok", f"role {role.name} has least privilege")


def _disk(folder: Path) -> CheckResult:
    free = shutil.disk_usage(folder if folder.exists() else folder.absolute().anchor).free
    if free < _LOW_DISK_BYTES:
        return CheckResult("disk", "warning", f"only {megabytes(free)} free", "free disk space")
    return CheckResult("disk", "ok", f"{megabytes(free)} free")


def _vectors(database: Database, index: VectorIndex | None) -> Iterator[CheckResult]:
    if index is None:
        yield CheckResult("vectors", "ok", "switched off (CMEM_VECTORS=off)")
        return
    if index.mode == "embedded":
        yield _open_files()
    try:
        index.collections.connect()
    except OwnedElsewhere as owned:
        yield CheckResult("vectors", "ok", f"{owned} Ask that server with vectors/status?deep=1")
        return
    except VectorsUnavailable as failure:
        yield CheckResult("vectors", "failed", str(failure), _PROBE)
        return
    probed = index.probe()
    if probed.ok:
        yield CheckResult("embedder", "ok", index.embedder.model_id)
        yield _collections(database, index)
    elif probed.stage == "embed":
        yield CheckResult("embedder", "failed", probed.error or "", "check CMEM_EMBEDDER and its settings")
    else:
        yield CheckResult("vectors", "failed", f"{probed.stage}: {probed.error}", _PROBE)


def _open_files() -> CheckResult:
    limit = server.raise_open_files_limit()
    if limit < server.OPEN_FILES_NEEDED:
        detail = f"the limit is {limit}, the vector index needs {server.OPEN_FILES_NEEDED}"
        return CheckResult("open files", "warning", detail, "raise the hard limit, `ulimit -Hn`")
    return CheckResult("open files", "ok", f"the limit is {limit}")


def _collections(database: Database, index: VectorIndex) -> CheckResult:
    """Compare collections with projects. A backlog in the outbox is on its way, and not a fault."""
    try:
        audit = index.repair.audit()
    except VectorsUnavailable as failure:
        return CheckResult("vectors", "failed", str(failure), _PROBE)
    with database.read() as connection:
        backlogs = outbox.backlogs(connection)
    lost = [project_id for project_id in audit.empty if project_id not in backlogs]
    if lost:
        return CheckResult("vectors", "failed", f"{len(lost)} projects have no vectors", _BACKFILL)
    if audit.orphans and index.mode == "embedded":  # on a shared server they may be another installation's
        return CheckResult("vectors", "warning", f"{len(audit.orphans)} collections belong to no project", _VERIFY)
    if audit.other_model:
        detail = f"{len(audit.other_model)} projects have vectors of another model"
        return CheckResult("vectors", "warning", detail, "run `cmem-server vectors rebuild`")
    return CheckResult("vectors", "ok", "every project has its collection")
