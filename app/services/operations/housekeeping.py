"""Periodic work of the server: write buffered timestamps, delete expired rows."""

from app.services.identity import keys
from app.services.quotas import rate_limit
from app.services.shared import idempotency
from app.store.database import Database


def flush_last_used(database: Database, last_used: dict[str, int], renewed_hashes: dict[str, tuple[str, str]]) -> None:
    """Write when keys were last used, and rehashed secrets; what arrives meanwhile is left for the next call."""
    stamps = {key_id: last_used.pop(key_id) for key_id in list(last_used)}
    renewals = {key_id: renewed_hashes.pop(key_id) for key_id in list(renewed_hashes)}
    if stamps or renewals:
        with database.write() as connection:
            if stamps:
                keys.stamp_used(connection, stamps)
            for key_id, (outdated, renewed) in renewals.items():
                keys.replace_hash(connection, key_id, outdated=outdated, renewed=renewed)


def delete_expired(database: Database) -> None:
    """Delete expired idempotency records and rate-limit counters."""
    with database.write() as connection:
        idempotency.delete_expired(connection)
        rate_limit.delete_expired(connection)
