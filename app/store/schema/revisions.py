"""The revision of a database and the newest one of this code, without Alembic, which takes longer to import than both.

Migrations themselves are in `migrations`.
"""

import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

from app.store.database import dialect_of
from app.store.schema import postgresql, sqlite

_SCRIPTS: Final = Path(__file__).parents[3] / "migrations"
_FILE_NAME: Final = re.compile(r"\d{4}_\d{2}_\d{2}_(\d{4})_\w+\.py")
"""The date, the number of the revision and what it does: revisions are a straight line in the order of their numbers."""


def current(url: str) -> str | None:
    """Return the revision of a database, None when it is empty or does not exist. Changes nothing."""
    revision: str | None = _schema(url).current(url)
    return revision


@cache
def newest() -> str:
    """Return the newest revision that this code knows, from the names of the migrations' files."""
    names = (path.name for path in (_SCRIPTS / sqlite.SCRIPTS).iterdir())
    return max(match.group(1) for match in map(_FILE_NAME.fullmatch, names) if match)


def is_at_head(url: str) -> bool:
    """Say whether a database is at the newest revision, so that there is nothing to migrate or to refuse."""
    return current(url) == newest()


def _schema(url: str) -> ModuleType:
    return postgresql if dialect_of(url) == "postgresql" else sqlite
