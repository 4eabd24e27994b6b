"""Request limits across processes."""

import pytest

from app.services.quotas import rate_limit
from app.services.quotas.rate_limit import Quota
from app.store.database import Database

LIMIT = 100


def quota(limit: int = LIMIT) -> Quota:
    return Quota(limit, rate_limit.month)


def exchange(database: Database, *processes: Quota) -> None:
    """Let each process store its counts and learn the total, one after the other."""
    for process in processes:
        unsynced = process.unsynced()
        with database.write() as connection:
            stored = rate_limit.store(connection, unsynced)
        process.apply_totals(stored)


def admit(process: Quota, requests: int) -> int:
    """Send requests until one would have to wait for the store; return how many were admitted."""
    admitted = 0
    while admitted < requests and process.remaining("key") and not process.must_sync("key"):
        process.count("key")
        admitted += 1
    return admitted


def test_process_admits_its_share_before_the_others_know(database: Database):
    """The share is a tenth of the limit."""
    assert admit(quota(), LIMIT) == LIMIT // 10


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_together_stay_within_the_limit_plus_their_shares(database: Database, processes: int):
    """At most limit + processes x share: the documented overshoot."""
    counting = [quota() for _ in range(processes)]
    admitted = 0
    for _ in range(LIMIT):
        admitted += sum(admit(process, LIMIT) for process in counting)
        exchange(database, *counting)

    assert LIMIT <= admitted <= LIMIT + processes * counting[0].share


def test_counts_survive_a_restart(database: Database):
    """Stored requests count for the next process too."""
    first, second = quota(), quota()
    for _ in range(10):
        admit(first, LIMIT)
        exchange(database, first)

    second.count("key")
    exchange(database, second)

    assert second.remaining("key") == 0


def test_keys_have_separate_limits(database: Database):
    """One key uses up nothing of another's."""
    process = quota()
    admit(process, LIMIT)

    assert process.remaining("another") == LIMIT


def test_requests_counted_during_a_flush_are_not_lost(database: Database):
    """Requests keep coming while the counts are stored."""
    process = quota()
    admit(process, 5)
    unsynced = process.unsynced()
    process.count("key")
    with database.write() as connection:
        process.apply_totals(rate_limit.store(connection, unsynced))

    assert process.remaining("key") == LIMIT - 6


def test_a_new_period_starts_at_zero(monkeypatch: pytest.MonkeyPatch):
    """Requests of the last minute no longer count."""
    process = Quota(LIMIT, rate_limit.minute)
    admit(process, 5)
    now = rate_limit.now_ms()
    monkeypatch.setattr(rate_limit, "now_ms", lambda: now + 60_000)

    assert process.remaining("key") == LIMIT


def test_expired_counts_are_deleted(database: Database, monkeypatch: pytest.MonkeyPatch):
    """A count is kept for one more month."""
    process = quota()
    admit(process, 5)
    exchange(database, process)
    now = rate_limit.now_ms()
    monkeypatch.setattr(rate_limit, "now_ms", lambda: now + 63 * 86_400_000)

    with database.write() as connection:
        rate_limit.delete_expired(connection)
        assert connection.exec_driver_sql("SELECT count(*) FROM request_counters").scalar() == 0
