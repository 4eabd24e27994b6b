"""For whom the database is asked at the moment. PostgreSQL's row-level security follows it; SQLite has no use for it.

owned() is what keeps teams apart; this is the second wall, for the day on which it is forgotten somewhere. A request
acts for nobody until its credential is known, then for that team. What the server does by itself acts for every team.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

NOBODY: Final = ""
EVERY_TEAM: Final = "*"

_acting_for: ContextVar[str] = ContextVar("acting_for", default=EVERY_TEAM)


def acting_for() -> str:
    """Return the id of the team whose rows may be seen now, `EVERY_TEAM`, or `NOBODY`."""
    return _acting_for.get()


def act_for(team_id: str | None) -> None:
    """Act for a team from here to the end of this task; None is the server itself, which may see every team."""
    _acting_for.set(EVERY_TEAM if team_id is None else team_id)


def act_for_nobody() -> None:
    """Act for nobody from here to the end of this task."""
    _acting_for.set(NOBODY)


@contextmanager
def acting(team_id: str | None) -> Iterator[None]:
    """Act for a team, or None for the server itself, within the block."""
    token = _acting_for.set(EVERY_TEAM if team_id is None else team_id)
    try:
        yield
    finally:
        _acting_for.reset(token)
