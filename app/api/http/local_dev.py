"""Which requests come from this machine and no web page: the only ones that local-dev mode lets in without a key."""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from litestar.types import Scope

_FORWARDING: Final = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SAME_SITE: Final = frozenset({b"same-origin", b"none"})


def is_local(scope: Scope) -> bool:
    """Say whether peer and Host are loopback, no proxy forwarded it, and no other site's page sent it.

    The Host is checked because a name of somebody else's can be made to point to this machine.
    """
    headers = [(name.lower(), value) for name, value in scope["headers"]]
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    return (
        _is_loopback(scope["client"][0] if scope["client"] else "")
        and len(hosts) == 1
        and _name_of(hosts[0]) in _LOCAL_NAMES
        and not any(name in _FORWARDING for name, _ in headers)
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


def _name_of(host: str) -> str | None:
    """Return the name in a Host header, None when it is more than a name and a port."""
    try:
        parts = urlsplit(f"//{host}")
        is_plain = parts.netloc == host and "@" not in host and parts.port != 0
    except ValueError:
        return None
    return parts.hostname if is_plain else None
