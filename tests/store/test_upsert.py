"""INSERT … ON CONFLICT, written once for both dialects."""

from sqlalchemy import select

from app.store.database import Database
from app.store.models import request_counters
from app.store.upsert import upsert


def test_second_upsert_updates_the_row_of_the_first(database: Database):
    """The new values may refer to the stored ones and to those that were offered."""
    key = {"key_id": "key", "period": "7", "updated_at_epoch": 1}
    with database.write() as connection:
        for count in (2, 3):
            statement = upsert(request_counters).values(**key, count=count)
            added = request_counters.c.count + statement.excluded.count
            connection.execute(
                statement.on_conflict_do_update(index_elements=["key_id", "period"], set_={"count": added})
            )
        counts = connection.scalars(select(request_counters.c.count)).all()

    assert counts == [5]


def test_upsert_can_leave_the_existing_row_alone(database: Database):
    """The first one wins, and the second raises nothing."""
    key = {"key_id": "key", "period": "7", "updated_at_epoch": 1}
    with database.write() as connection:
        for count in (2, 3):
            connection.execute(upsert(request_counters).values(**key, count=count).on_conflict_do_nothing())
        counts = connection.scalars(select(request_counters.c.count)).all()

    assert counts == [2]
