"""The team that the current task acts for. PostgreSQL's row-level security follows it; SQLite does not use it.

owned() keeps teams apart; row-level security is the second barrier, in case owned() is forgotten somewhere. A request
acts for nobody until its credential is verified, then for that team. The server's own work acts for every team.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

NOBODY: Final = ""
EVERY_TEAM: Final = "*"

_current_team_id: ContextVar[str] = ContextVar("current_team_id", default=EVERY_TEAM)


def current_team_id() -> str:
    """Return the id of the team whose rows are visible now, `EVERY_TEAM`, or `NOBODY`."""
    return _current_team_id.get()


def act_for(team_id: str | None) -> None:
    """Act for a team until the end of this task; None is the server itself, which may see every team."""
    _current_team_id.set(EVERY_TEAM if team_id is None else team_id)


def act_for_nobody() -> None:
    """Act for nobody until the end of this task."""
    _current_team_id.set(NOBODY)


@contextmanager
def acting_for(team_id: str | None) -> Iterator[None]:
    """Act for a team within the block; None is the server itself."""
    token = _current_team_id.set(EVERY_TEAM if team_id is None else team_id)
    try:
        yield
    finally:
        _current_team_id.reset(token)
