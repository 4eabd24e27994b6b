"""Which requests come from this machine, and from no web page of another site."""

from typing import Any

import pytest

from app.api.http.local_dev import is_local


def scope(*headers: tuple[str, str], peer: str | None = "127.0.0.1") -> Any:
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return {"headers": encoded, "client": (peer, 50_000) if peer else None}


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000"])
def test_request_from_this_machine_is_local(peer: str, host: str):
    """By peer and by Host, with or without a port."""
    assert is_local(scope(("Host", host), peer=peer))


@pytest.mark.parametrize("peer", ["192.168.0.7", "::ffff:10.0.0.1", "2001:db8::1", "unix", None])
def test_other_peer_is_not_local(peer: str | None):
    """Whatever Host it claims."""
    assert not is_local(scope(("Host", "localhost"), peer=peer))


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "user@localhost", "localhost/x", "localhost:0", "[::1", ""]
)
def test_other_host_is_not_local(host: str):
    """A domain name may resolve to this machine without belonging to it."""
    assert not is_local(scope(("Host", host)))


def test_missing_or_repeated_host_is_not_local():
    """Servers disagree about which of two counts."""
    assert not is_local(scope())
    assert not is_local(scope(("Host", "localhost"), ("Host", "localhost")))


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP"])
def test_forwarded_request_is_not_local(header: str):
    """The peer is then the proxy."""
    assert not is_local(scope(("Host", "localhost"), (header, "127.0.0.1")))


@pytest.mark.parametrize(
    ("header", "value", "expected"),
    [
        ("Origin", "http://localhost:8000", True),
        ("Origin", "http://localhost:3000", False),
        ("Origin", "https://localhost:8000", False),
        ("Origin", "null", False),
        ("Sec-Fetch-Site", "same-origin", True),
        ("Sec-Fetch-Site", "none", True),
        ("Sec-Fetch-Site", "same-site", False),
        ("Sec-Fetch-Site", "cross-site", False),
    ],
)
def test_page_of_another_origin_is_not_local(header: str, value: str, expected: bool):
    """A browser sends these for any page that is open on this machine."""
    assert is_local(scope(("Host", "localhost:8000"), (header, value))) is expected
