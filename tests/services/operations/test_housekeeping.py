"""Periodic work of the server."""

from app.services.operations import housekeeping
from tests.services.conftest import TeamProject


def test_expired_idempotency_records_are_deleted(team_project: TeamProject):
    """They expire after a day."""
    with team_project.database.write() as connection:
        connection.exec_driver_sql("INSERT INTO idempotency_records VALUES ('k', 'old', 'POST /', 'h', 201, '[]', 1)")

    housekeeping.delete_expired(team_project.database)

    with team_project.database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM idempotency_records").scalar_one() == 0
