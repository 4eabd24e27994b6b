"""Recognizes requests from this machine that no web page sent: only those need no key in local-dev mode."""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from litestar.types import Scope

_PROXY_HEADERS: Final = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SAME_SITE: Final = frozenset({b"same-origin", b"none"})


def is_local(scope: Scope) -> bool:
    """Say whether peer and Host are loopback, no proxy forwarded the request, and no page of another site sent it.

    The Host is checked because anyone can make a domain name of theirs resolve to this machine (DNS rebinding).
    """
    headers = [(name.lower(), value) for name, value in scope["headers"]]
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    return (
        _is_loopback(scope["client"][0] if scope["client"] else "")
        and len(hosts) == 1
        and _host_name(hosts[0]) in _LOCAL_NAMES
        and not any(name in _PROXY_HEADERS for name, _ in headers)
        and all(value.decode("latin-1") == f"http://{hosts[0]}" for name, value in headers if name == b"origin")
        and all(value in _SAME_SITE for name, value in headers if name == b"sec-fetch-site")
    )


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _host_name(host: str) -> str | None:
    """Return the name in a Host header; None when it contains more than a name and a port."""
    try:
        parts = urlsplit(f"//{host}")
        is_plain = parts.netloc == host and "@" not in host and parts.port != 0
    except ValueError:
        return None
    return parts.hostname if is_plain else None
