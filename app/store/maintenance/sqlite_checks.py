"""Checks of an SQLite file: unused pages, and the size of its write-ahead log."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from app.store.database import Database
from app.store.maintenance import sqlite
from app.store.maintenance.checks import Check, CheckResult, Role, megabytes

HAS_ROLES: Final = False
_MAINTAIN: Final = "run `cmem-server maintenance run`"
_LARGE_WAL_BYTES: Final = 256 * 1024 * 1024
_FREE_PAGES_SHARE: Final = 0.5
_SMALL_FILE_PAGES: Final = 10_000


def missing_file(database: Database) -> Path | None:
    """Return where the database file should be when there is none."""
    return None if database.path.exists() else database.path


def detects_damaged_pages(connection: Connection) -> bool:
    """Say yes: SQLite reads every page to find them."""
    del connection
    return True


def content_checks(database: Database) -> Sequence[Check]:
    """Return the check of unused pages."""
    return [Check("free pages", lambda: _free_pages(database), _MAINTAIN)]


def file_checks(database: Database) -> Sequence[Check]:
    """Return the check of the write-ahead log."""
    return [Check("log", lambda: _write_ahead_log(database), _MAINTAIN)]


def role(connection: Connection) -> Role:
    """Raise LookupError: SQLite has no roles."""
    del connection
    raise LookupError("SQLite has no roles")


def _free_pages(database: Database) -> CheckResult:
    with database.read() as connection:
        free, pages = sqlite.free_and_total(connection)
    if pages > _SMALL_FILE_PAGES and free / pages > _FREE_PAGES_SHARE:
        return CheckResult("free pages", "warning", f"{free / pages:.0%} of the file is free", _MAINTAIN)
    return CheckResult("free pages", "ok", f"{free} of {pages}")


def _write_ahead_log(database: Database) -> CheckResult:
    size_bytes = sqlite.sizes(database)["wal"]
    if size_bytes > _LARGE_WAL_BYTES:
        detail = f"The WAL has grown to {size_bytes / 1024 / 1024:,.0f} MB and needs a checkpoint."
        return CheckResult("log", "warning", detail, _MAINTAIN)
    return CheckResult("log", "ok", megabytes(size_bytes))
