"""Health checks that only one dialect needs, and the result that every check returns. One contract, two modules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from sqlalchemy import Connection

from app.store.database import Database

State = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found; `remedy` says what to do when the state is not ok."""

    what: str
    state: State
    detail: str
    remedy: str | None = None


class Check(NamedTuple):
    """A check. `remedy` is for the case that it cannot even run."""

    name: str
    run: Callable[[], CheckResult]
    remedy: str


class Role(NamedTuple):
    """A database role, and the privileges that let it bypass row-level security."""

    name: str
    privileges: Sequence[str]


class DialectChecks(Protocol):
    """The contract of a dialect's module. `HAS_ROLES`: the server may connect as another role than the owner."""

    HAS_ROLES: bool

    def missing_file(self, database: Database) -> Path | None:
        """Return where the database file should be when there is none."""

    def detects_damaged_pages(self, connection: Connection) -> bool:
        """Say whether `damaged_pages` can be trusted to find damage."""

    def content_checks(self, database: Database) -> Sequence[Check]:
        """Return the checks that read the database."""

    def file_checks(self, database: Database) -> Sequence[Check]:
        """Return the checks that work even when the database cannot be opened."""

    def role(self, connection: Connection) -> Role:
        """Return the role of a connection; only where HAS_ROLES."""


def megabytes(size_bytes: float) -> str:
    """Return a size for people."""
    return f"{size_bytes / 1024 / 1024:,.1f} MB"
