"""Idempotency keys: what the first POST with a key did, kept for a day as route, body hash, status and ids only."""

from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, delete, select

from app.caller import Caller
from app.clock import now_ms
from app.errors import IdempotencyMismatch
from app.store.models import idempotency_records
from app.store.prepared import PreparedStatement
from app.store.upsert import upsert

KEPT_MS: Final = 86_400_000
_KEYLESS: Final = "local-dev"


class IdempotencyRecord(NamedTuple):
    """What the first request with a key did."""

    route: str
    body_hash: str
    status: int
    ids: list[str]


_LOOKUP: Final = PreparedStatement(
    select(*(idempotency_records.c[name] for name in IdempotencyRecord._fields)).where(
        idempotency_records.c.key_id == bindparam("key_id"),
        idempotency_records.c.idempotency_key == bindparam("idempotency_key"),
        idempotency_records.c.created_at_epoch > bindparam("kept_since"),
    ),
    IdempotencyRecord,
)


def recall(connection: Connection, caller: Caller, key: str, *, route: str, body_hash: str) -> IdempotencyRecord | None:
    """Return what the key's first request did, None if there was none; IdempotencyMismatch if they differ."""
    values = {"key_id": caller.key_id or _KEYLESS, "idempotency_key": key, "kept_since": now_ms() - KEPT_MS}
    record = _LOOKUP.first(connection, values)
    if record is not None and (record.route, record.body_hash) != (route, body_hash):
        raise IdempotencyMismatch("This Idempotency-Key was already used for a different request.")
    return record


def remember(connection: Connection, caller: Caller, key: str, record: IdempotencyRecord) -> None:
    """Store what a request did, in the same transaction."""
    values: dict[str, Any] = {**record._asdict(), "created_at_epoch": now_ms()}
    statement = upsert(idempotency_records).values(key_id=caller.key_id or _KEYLESS, idempotency_key=key, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=["key_id", "idempotency_key"], set_=values))


def delete_expired(connection: Connection) -> int:
    """Delete the records that are older than a day; return how many."""
    old = idempotency_records.c.created_at_epoch <= now_ms() - KEPT_MS
    return connection.execute(delete(idempotency_records).where(old)).rowcount
