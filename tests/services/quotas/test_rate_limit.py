"""Limits: what several processes count together, and how failures are bounded."""

import pytest

from app.services.quotas import rate_limit
from app.services.quotas.rate_limit import Allowance, FailureLimit, Pace
from app.store.database import Database

LIMIT = 100


def allowance(limit: int = LIMIT) -> Allowance:
    return Allowance(limit, rate_limit.month)


def exchange(database: Database, *processes: Allowance) -> None:
    """Let each process store what it counted and learn the total, in turn."""
    for process in processes:
        waiting = process.waiting()
        with database.write() as connection:
            stored = rate_limit.store(connection, waiting)
        process.settle(stored)


def admit(process: Allowance, requests: int) -> int:
    """Send requests until one would have to wait for the store; return how many were let in."""
    admitted = 0
    while admitted < requests and process.remaining("key") and not process.must_store("key"):
        process.count("key")
        admitted += 1
    return admitted


def test_a_process_admits_a_share_before_the_others_know(database: Database):
    """The bound on what the others do not know of is a tenth of the limit."""
    assert admit(allowance(), LIMIT) == LIMIT // 10


@pytest.mark.parametrize("processes", [2, 4])
def test_together_the_processes_stay_within_limit_and_shares(database: Database, processes: int):
    """At most limit + processes x share: the overshoot that the documentation states."""
    counting = [allowance() for _ in range(processes)]
    admitted = 0
    for _ in range(LIMIT):
        admitted += sum(admit(process, LIMIT) for process in counting)
        exchange(database, *counting)

    assert LIMIT <= admitted <= LIMIT + processes * counting[0].share


def test_a_restart_forgets_nothing(database: Database):
    """What was stored counts for the next process too."""
    first, second = allowance(), allowance()
    for _ in range(10):
        admit(first, LIMIT)
        exchange(database, first)

    second.count("key")
    exchange(database, second)

    assert second.remaining("key") == 0


def test_one_key_uses_up_nothing_of_another(database: Database):
    """Limits are by key."""
    process = allowance()
    admit(process, LIMIT)

    assert process.remaining("another") == LIMIT


def test_what_was_counted_while_it_was_stored_is_not_lost(database: Database):
    """Requests go on during a flush."""
    process = allowance()
    admit(process, 5)
    waiting = process.waiting()
    process.count("key")
    with database.write() as connection:
        process.settle(rate_limit.store(connection, waiting))

    assert process.remaining("key") == LIMIT - 6


def test_a_new_period_starts_at_zero(monkeypatch: pytest.MonkeyPatch):
    """What was used in the last minute is no longer counted."""
    process = Allowance(LIMIT, rate_limit.minute)
    admit(process, 5)
    now = rate_limit.now_ms()
    monkeypatch.setattr(rate_limit, "now_ms", lambda: now + 60_000)

    assert process.remaining("key") == LIMIT


def test_old_counts_are_forgotten(database: Database, monkeypatch: pytest.MonkeyPatch):
    """A count outlives its month by one month."""
    process = allowance()
    admit(process, 5)
    exchange(database, process)
    now = rate_limit.now_ms()
    monkeypatch.setattr(rate_limit, "now_ms", lambda: now + 63 * 86_400_000)

    with database.write() as connection:
        rate_limit.forget_old(connection)
        assert connection.exec_driver_sql("SELECT count(*) FROM request_counters").scalar() == 0


def test_failures_are_bounded_by_name_and_minute(monkeypatch: pytest.MonkeyPatch):
    """So many wrong secrets a minute, then no more checks until the next."""
    failures = FailureLimit(per_name=3)
    for _ in range(3):
        assert failures.admits("peer")
        failures.count("peer")

    assert not failures.admits("peer")
    assert failures.admits("another")
    now = rate_limit.now_ms()
    monkeypatch.setattr(rate_limit, "now_ms", lambda: now + 60_000)
    assert failures.admits("peer")


def test_a_burst_is_answered_at_once_and_a_flood_waits():
    """Fifty a second after the first two hundred, two seconds at most."""
    pace = Pace(per_second=50, burst=200, longest_wait_seconds=2.0)

    assert [pace.wait_seconds("peer") for _ in range(199)] == [0.0] * 199
    waits = [pace.wait_seconds("peer") for _ in range(400)]

    assert waits[-1] == pytest.approx(2.0, abs=0.1)
    assert pace.wait_seconds("another") == 0.0


@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("a socket", "a socket"),
    ],
)
def test_a_customer_with_many_addresses_is_one_peer(host: str, peer: str):
    """An IPv6 customer has a /64 to himself."""
    assert rate_limit.peer_of(host) == peer
