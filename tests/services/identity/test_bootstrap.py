"""The first run, once."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from app.services.identity import bootstrap
from app.store.database import Database


def test_of_many_first_runs_at_once_one_makes_the_key(database: Database):
    """The others find a team and make nothing."""

    def run(_: int) -> bootstrap.FirstKey | None:
        with closing(Database(database.url)) as own:
            return bootstrap.once(own)

    with ThreadPoolExecutor(4) as pool:
        made = [key for key in pool.map(run, range(4)) if key]

    assert len(made) == 1
    with database.read() as connection:
        counts = [connection.exec_driver_sql(f"SELECT count(*) FROM {t}").scalar_one() for t in ("teams", "api_keys")]
    assert counts == [1, 1]


def test_a_database_with_a_team_is_left_alone(database: Database):
    """The second start makes no second key."""
    first = bootstrap.once(database)

    assert first is not None
    assert first.api_key.startswith("cmem_")
    assert bootstrap.once(database) is None
