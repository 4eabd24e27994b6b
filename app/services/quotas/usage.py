"""Usage: requests per team, month and kind. Counted in memory, stored in batches."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from sqlalchemy import Connection, func

from app.caller import Caller
from app.store.models import api_keys, teams, usage_counters
from app.store.scope import owned, unscoped
from app.store.upsert import upsert

Kind = Literal["read", "search", "write", "admin"]
KINDS: Final[tuple[Kind, ...]] = ("read", "search", "write", "admin")


class UsageKey(NamedTuple):
    """What requests are counted by."""

    key_id: str
    team_id: str | None
    month: str
    kind: Kind


def store(connection: Connection, counts: Mapping[UsageKey, int]) -> None:
    """Add counts to the stored totals; those of a team that has been deleted meanwhile are dropped."""
    existing = _lock_existing(connection, {key.team_id for key in counts} - {None})
    rows = [{**key._asdict(), "count": count} for key, count in counts.items() if key.team_id in {None, *existing}]
    if not rows:
        return
    statement = upsert(usage_counters)
    added = {"count": usage_counters.c.count + statement.excluded.count}
    connection.execute(statement.on_conflict_do_update(index_elements=["key_id", "month", "kind"], set_=added), rows)


def _lock_existing(connection: Connection, team_ids: set[str | None]) -> set[str]:
    """Return which of these teams exist, and lock their rows against deletion until the transaction ends."""
    existing = unscoped(teams, teams.c.id).where(teams.c.id.in_(sorted(filter(None, team_ids))))
    return set(connection.scalars(existing.order_by(teams.c.id).with_for_update(read=True, key_share=True)))


def totals(connection: Connection, caller: Caller, month: str) -> dict[Kind, int]:
    """Return the month's stored requests by kind, of the caller's team or project."""
    by_kind: dict[Kind, int] = dict.fromkeys(KINDS, 0)
    statement = owned(usage_counters, caller, usage_counters.c.kind, func.sum(usage_counters.c.count))
    if caller.project_id is not None:
        own_keys = owned(api_keys, caller, api_keys.c.id).scalar_subquery()
        statement = statement.where(usage_counters.c.key_id.in_(own_keys))
    rows = connection.execute(statement.where(usage_counters.c.month == month).group_by(usage_counters.c.kind))
    return by_kind | {kind: int(count) for kind, count in rows}
