"""The revision of a database and the newest revision of this code, without Alembic, whose import is slow.

The migrations themselves are in `migrations`.
"""

import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

from app.store.database import dialect_of
from app.store.schema import postgresql, sqlite

SCRIPTS: Final = Path(__file__).parents[3] / "migrations"
_FILE_NAME: Final = re.compile(r"\d{4}_\d{2}_\d{2}_(\d{4})_\w+\.py")
"""The date, the number of the revision and what it does; revisions are applied in the order of their numbers."""


def current(url: str) -> str | None:
    """Return the revision of a database, or None when it is empty or missing. It is not changed."""
    revision: str | None = schema_of(url).current(url)
    return revision


@cache
def newest() -> str:
    """Return the newest revision that this code knows, from the file names of the migrations."""
    names = (path.name for path in (SCRIPTS / sqlite.SCRIPTS).iterdir())
    return max(match.group(1) for match in map(_FILE_NAME.fullmatch, names) if match)


def is_at_head(url: str) -> bool:
    """Say whether a database is at the newest revision, and so needs no migration."""
    return current(url) == newest()


def schema_of(url: str) -> ModuleType:
    """Return the schema module of a database's dialect."""
    return postgresql if dialect_of(url) == "postgresql" else sqlite
