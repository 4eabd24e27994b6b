"""Periodic work of the server."""

from app.services.operations import housekeeping
from tests.services.conftest import Place


def test_expired_idempotency_records_are_deleted(place: Place):
    """They expire after a day."""
    with place.database.write() as connection:
        connection.exec_driver_sql("INSERT INTO idempotency_records VALUES ('k', 'old', 'POST /', 'h', 201, '[]', 1)")

    housekeeping.delete_expired(place.database)

    with place.database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM idempotency_records").scalar_one() == 0
