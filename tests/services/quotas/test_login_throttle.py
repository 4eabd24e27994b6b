"""Throttling of failed credentials."""

import pytest

from app.services.quotas import login_throttle
from app.services.quotas.login_throttle import LeakyBucket, LoginThrottle


def test_failures_are_limited_per_name_and_minute(monkeypatch: pytest.MonkeyPatch):
    """After the limit there are no more checks until the next minute."""
    failures = LoginThrottle(max_failures_per_minute=3)
    for _ in range(3):
        assert failures.allows("peer")
        failures.count("peer")

    assert not failures.allows("peer")
    assert failures.allows("another")
    now = login_throttle.now_ms()
    monkeypatch.setattr(login_throttle, "now_ms", lambda: now + 60_000)
    assert failures.allows("peer")


def test_burst_is_answered_immediately_and_a_flood_is_delayed():
    """200 at once, then 50 per second, delayed by two seconds at most."""
    bucket = LeakyBucket(per_second=50, burst=200, max_delay_seconds=2.0)

    assert [bucket.delay_seconds("peer") for _ in range(199)] == [0.0] * 199
    waits = [bucket.delay_seconds("peer") for _ in range(400)]

    assert waits[-1] == pytest.approx(2.0, abs=0.1)
    assert bucket.delay_seconds("another") == 0.0


@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("a socket", "a socket"),
    ],
)
def test_customer_with_many_addresses_is_one_peer(host: str, peer: str):
    """An IPv6 customer has a whole /64 network."""
    assert login_throttle.peer_of(host) == peer
