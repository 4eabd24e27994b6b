"""A Chroma server with TLS, an authentication header, a tenant and a database of its own, like a hosted one."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.vectors.chroma.client_config import ClientConfig
from app.vectors.chroma.collections import Collections
from app.vectors.chroma.connection import Connection
from app.vectors.chroma.server import RemoteServer
from app.vectors.errors import VectorsUnavailable
from tests import chroma_server
from tests.chroma_server import free_port
from tests.vectors.chroma.test_collections import NAME, fill, make_vectors, wait_for

CADDY = Path(sys.executable).with_name("caddy")
KEY = "a key that the proxy knows"
PROXY = """\
{{
  admin off
  skip_install_trust
  auto_https disable_redirects
}}
https://localhost:{port} {{
  bind 127.0.0.1
  tls internal
  @known header {header} "{value}"
  handle @known {{
    reverse_proxy 127.0.0.1:{chroma}
  }}
  respond 403
}}
"""


@pytest.fixture
def chroma(tmp_path: Path) -> Iterator[int]:
    """The port of a Chroma server with a tenant `acme` and its database `memories`."""
    port = free_port()
    with chroma_server.running(tmp_path / "chroma", port) as url:
        opened = Connection(RemoteServer(url), backoff_seconds=0.05)
        wait_for(opened)
        opened.close()
        with httpx.Client(base_url=f"{url}/api/v2", trust_env=False) as http:
            assert http.post("/tenants", json={"name": "acme"}).is_success
            assert http.post("/tenants/acme/databases", json={"name": "memories"}).is_success
        yield port


@pytest.fixture(params=[("X-Chroma-Token", KEY), ("Authorization", f"Bearer {KEY}")])
def proxied(request: pytest.FixtureRequest, chroma: int, tmp_path: Path) -> Iterator[tuple[str, ClientConfig]]:
    """The https URL of a proxy in front of it, and the matching configuration."""
    header, value = request.param
    port = free_port()
    config = tmp_path / "Caddyfile"
    config.write_text(PROXY.format(port=port, header=header, value=value, chroma=chroma))
    environment = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "certificates")}
    command = [CADDY, "run", "--adapter", "caddyfile", "--config", config]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as proxy:
        authority = tmp_path / "certificates" / "caddy" / "pki" / "authorities" / "local" / "root.crt"
        deadline = time.monotonic() + 20
        while not authority.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        names = {"tenant": "acme", "database": "memories"}
        yield f"https://localhost:{port}", ClientConfig(**names, auth_header=header, api_key=KEY, ca_file=authority)
        proxy.terminate()


def test_header_certificate_tenant_and_database_grant_access(proxied: tuple[str, ClientConfig], chroma: int):
    """Vectors are written to and found in this database, and in no other of the server."""
    url, client_config = proxied
    connection = Connection(RemoteServer(url), client_config=client_config, backoff_seconds=0.05)
    wait_for(connection)
    collections = Collections(connection)
    fill(collections)

    assert collections.query(NAME, make_vectors(10)[3], limit=1)[0].document_id == "mem_m3_text"
    connection.close()
    with httpx.Client(base_url=f"http://127.0.0.1:{chroma}/api/v2", trust_env=False) as http:
        counts = {
            path: http.get(f"/tenants/{path}/collections_count").json()
            for path in ("acme/databases/memories", "default_tenant/databases/default_database")
        }
    assert list(counts.values()) == [1, 0]


@pytest.mark.parametrize("changed", [{"api_key": ""}, {"api_key": "another"}, {"ca_file": None}])
def test_index_is_unavailable_without_one_of_them(proxied: tuple[str, ClientConfig], changed: dict[str, object]):
    """No key, a wrong key or an untrusted certificate: each is an outage, not a crash."""
    url, config = proxied
    fields = {name: getattr(config, name) for name in ("tenant", "database", "auth_header", "api_key", "ca_file")}
    connection = Connection(
        RemoteServer(url), client_config=ClientConfig(**{**fields, **changed}), backoff_seconds=0.05
    )

    with pytest.raises(VectorsUnavailable):
        connection.limits()
    connection.close()


def test_missing_ca_file_is_an_outage(proxied: tuple[str, ClientConfig], tmp_path: Path):
    """It existed when the server started; searches must not fail."""
    url, config = proxied
    moved = ClientConfig(tenant=config.tenant, database=config.database, ca_file=tmp_path / "moved.pem")
    connection = Connection(RemoteServer(url), client_config=moved, backoff_seconds=0.05)

    with pytest.raises(VectorsUnavailable, match="CA file"):
        connection.limits()
    connection.close()
