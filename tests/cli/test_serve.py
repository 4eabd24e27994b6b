"""`serve`, as an operator starts it."""

import socket

import httpx
import pytest

from tests.serving import Home, serving

pytestmark = pytest.mark.process

FACT = "The payment gateway waits three seconds for the bank."


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_a_second_start_keeps_the_data_and_shows_no_key(home: Home):
    """After the second start, the key of the first one still reads what it wrote."""
    with home.serving() as first:
        key = {"Authorization": f"Bearer {first.exported['KEY']}"}
        fact = {"projectId": first.exported["PROJECT"], "content": FACT}
        httpx.post(f"{first.url}/v1/memories", json=fact, headers=key, trust_env=False).raise_for_status()

    with home.serving() as second:
        memories = httpx.get(f"{second.url}/v1/memories", headers=key, trust_env=False).json()["memories"]

    assert [memory["content"] for memory in memories] == [FACT]
    assert "cmem_" not in second.printed


def test_a_port_in_use_is_one_clear_line(home: Home):
    """With the address, and without a stack trace."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = home.run("serve", "--port", str(port))

    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: Cannot listen on 127.0.0.1:{port}: Address already in use")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_an_ipv6_address_is_announced_as_it_must_be_typed(tmp_path):
    """In brackets, so that the URL works."""
    with serving(tmp_path, "--host", "::1") as started:
        assert started.url.startswith("http://[::1]:")
