"""Idempotency keys: what a repeated POST did the first time, kept a day as route, body hash, status and ids only."""

from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, delete, select

from app.caller import Caller
from app.clock import now_ms
from app.errors import IdempotencyMismatch
from app.store.models import idempotency_records
from app.store.prepared import Prepared
from app.store.upsert import upsert

KEPT_MS: Final = 86_400_000
_KEYLESS: Final = "local-dev"


class Remembered(NamedTuple):
    """What the first request did."""

    route: str
    body_hash: str
    status: int
    ids: list[str]


_LOOKUP: Final = Prepared(
    select(*(idempotency_records.c[name] for name in Remembered._fields)).where(
        idempotency_records.c.key_id == bindparam("key_id"),
        idempotency_records.c.idempotency_key == bindparam("idempotency_key"),
        idempotency_records.c.created_at_epoch > bindparam("kept_since"),
    ),
    Remembered,
)


def recall(connection: Connection, caller: Caller, key: str, *, route: str, body_hash: str) -> Remembered | None:
    """Return what a key did already; IdempotencyMismatch when it was used for another request."""
    values = {"key_id": caller.key_id or _KEYLESS, "idempotency_key": key, "kept_since": now_ms() - KEPT_MS}
    remembered = _LOOKUP.first(connection, values)
    if remembered is not None and (remembered.route, remembered.body_hash) != (route, body_hash):
        raise IdempotencyMismatch("This Idempotency-Key was used for another request.")
    return remembered


def remember(connection: Connection, caller: Caller, key: str, done: Remembered) -> None:
    """Note what a key did, in the transaction that did it."""
    values: dict[str, Any] = {**done._asdict(), "created_at_epoch": now_ms()}
    statement = upsert(idempotency_records).values(key_id=caller.key_id or _KEYLESS, idempotency_key=key, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=["key_id", "idempotency_key"], set_=values))


def forget_old(connection: Connection) -> int:
    """Delete what is older than a day; return how many."""
    old = idempotency_records.c.created_at_epoch <= now_ms() - KEPT_MS
    return connection.execute(delete(idempotency_records).where(old)).rowcount
