"""Teams: the verbs and the rules. A team is the wall that nothing crosses."""

from typing import Any, Final

from sqlalchemy import Connection, insert, or_, select

from app.caller import SERVER_ADMIN, Caller
from app.clock import new_id, now_ms
from app.errors import Conflict, NotFound
from app.services import audit, slugs
from app.store.models import teams
from app.store.records import Team, columns
from app.store.scope import every

_COLUMNS: Final = columns(teams, Team)


def create(
    connection: Connection,
    caller: Caller,
    *,
    name: str,
    slug: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> Team:
    """Make a team; needs server:admin. Conflict when a slug that was given is taken."""
    caller.require(SERVER_ADMIN)
    if slug is not None and _slug_is_taken(connection, slugs.validated(slug)):
        raise Conflict(f"The slug {slug!r} is taken.")
    now = now_ms()
    made = slug or slugs.free(name, fallback="team", is_taken=lambda wanted: _slug_is_taken(connection, wanted))
    team = Team(new_id(), name, made, metadata or {}, now, now)
    connection.execute(insert(teams).values({key: getattr(team, key) for key in Team.__struct_fields__}))
    audit.record(connection, caller.within(team.id), "team.create", target=("team", team.id))
    return team


def find(connection: Connection, caller: Caller, id_or_slug: str) -> Team:
    """Return a team by id or slug, for whoever may see every team; NotFound otherwise."""
    caller.require(SERVER_ADMIN)
    wanted = or_(teams.c.id == id_or_slug, teams.c.slug == id_or_slug)
    row = connection.execute(every(teams, *_COLUMNS).where(wanted)).first()
    if row is None:
        raise NotFound("team")
    return Team(*row)


def everybody(connection: Connection, caller: Caller) -> list[Team]:
    """Return all teams, oldest first; needs server:admin."""
    caller.require(SERVER_ADMIN)
    rows = connection.execute(every(teams, *_COLUMNS).order_by(teams.c.created_at_epoch, teams.c.id))
    return [Team(*row) for row in rows]


def _slug_is_taken(connection: Connection, slug: str) -> bool:
    return connection.scalar(select(every(teams).where(teams.c.slug == slug).exists())) or False
