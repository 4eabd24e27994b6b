"""The audit log: who did what to which thing. Written in the transaction of the effect; ids only, never a text."""

from typing import Final

from sqlalchemy import Connection

from app.caller import Caller
from app.clock import new_id, now_ms
from app.store.models import audit_log
from app.store.prepared import inserting

_INSERT: Final = inserting(audit_log, "seq")


def record(
    connection: Connection,
    caller: Caller,
    action: str,
    *,
    target: tuple[str, str | None],
    project_id: str | None = None,
    count: int = 1,
    outcome: str = "done",
) -> None:
    """Write one entry; `action` is verb and noun (`memory.create`), `target` the noun and its id."""
    _INSERT.run(
        connection,
        {
            "id": new_id(),
            "team_id": caller.team_id,
            "project_id": project_id or caller.project_id,
            "actor_id": caller.key_id,
            "user_id": caller.user_id,
            "action": action,
            "target_type": target[0],
            "target_id": target[1],
            "outcome": outcome,
            "count": count,
            "request_id": caller.request_id,
            "created_at_epoch": now_ms(),
        },
    )
