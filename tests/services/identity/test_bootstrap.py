"""The first run happens once."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from app.services.identity import bootstrap
from app.store.database import Database


def test_concurrent_first_runs_create_one_key(database: Database):
    """The others find a team and create nothing."""

    def run(_: int) -> bootstrap.FirstKey | None:
        with closing(Database(database.url)) as own:
            return bootstrap.run_once(own)

    with ThreadPoolExecutor(4) as pool:
        created = [key for key in pool.map(run, range(4)) if key]

    assert len(created) == 1
    with database.read() as connection:
        counts = [connection.exec_driver_sql(f"SELECT count(*) FROM {t}").scalar_one() for t in ("teams", "api_keys")]
    assert counts == [1, 1]


def test_database_with_a_team_is_left_unchanged(database: Database):
    """The second start creates no second key."""
    first = bootstrap.run_once(database)

    assert first is not None
    assert first.api_key.startswith("cmem_")
    assert bootstrap.run_once(database) is None
