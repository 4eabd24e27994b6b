"""What the server does by itself now and then."""

from app.services.operations import housekeeping
from tests.services.conftest import Place


def test_old_idempotency_records_are_reaped(place: Place):
    """What is older than a day goes."""
    with place.database.write() as connection:
        connection.exec_driver_sql("INSERT INTO idempotency_records VALUES ('k', 'old', 'POST /', 'h', 201, '[]', 1)")

    housekeeping.reap(place.database)

    with place.database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM idempotency_records").scalar_one() == 0
