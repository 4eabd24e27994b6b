"""What the server does by itself now and then: flush stamps, forget old idempotency records."""

from app.services import idempotency, keys
from app.store.database import Database


def flush_stamps(database: Database, last_used: dict[str, int]) -> None:
    """Write when keys were last used; the stamps that arrive meanwhile wait for the next time."""
    stamps = {key_id: last_used.pop(key_id) for key_id in list(last_used)}
    if stamps:
        with database.write() as connection:
            keys.stamp_used(connection, stamps)


def reap(database: Database) -> None:
    """Delete what has outlived its use."""
    with database.write() as connection:
        idempotency.forget_old(connection)
