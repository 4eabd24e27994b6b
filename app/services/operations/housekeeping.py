"""What the server does by itself now and then: flush stamps, forget what has outlived its use."""

from app.services.identity import keys
from app.services.quotas import rate_limit
from app.services.shared import idempotency
from app.store.database import Database


def flush_stamps(database: Database, last_used: dict[str, int], renewed_hashes: dict[str, tuple[str, str]]) -> None:
    """Write when keys were last used, and hashes under new parameters; what arrives meanwhile waits for next time."""
    stamps = {key_id: last_used.pop(key_id) for key_id in list(last_used)}
    renewals = {key_id: renewed_hashes.pop(key_id) for key_id in list(renewed_hashes)}
    if stamps or renewals:
        with database.write() as connection:
            if stamps:
                keys.stamp_used(connection, stamps)
            for key_id, (outdated, renewed) in renewals.items():
                keys.replace_hash(connection, key_id, outdated=outdated, renewed=renewed)


def reap(database: Database) -> None:
    """Delete what has outlived its use."""
    with database.write() as connection:
        idempotency.forget_old(connection)
        rate_limit.forget_old(connection)
