"""Hostile requests: paths, methods, media types, browsers, proxies, and what a rejected request may cost."""

import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from app.caller import server_owner
from app.services.identity import credentials, keys, teams
from app.store.database import Database
from tests.conftest import Server, Tenant, client, make_tenant
from tests.databases import Databases
from tests.serving import Home, serving

MORE_GUESSES_THAN_A_PEER_MAY_MAKE = 30
PAGE = "http://page.example"


def send_raw(server: Server, request: bytes) -> bytes:
    """Send bytes unchanged and return the whole reply; an HTTP client would normalize them."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def status_of(server: Server, method: str, target: str, headers: str = "") -> int:
    request = f"{method} {target} HTTP/1.1\r\nHost: {server.url[7:]}\r\nConnection: close\r\n{headers}\r\n"
    return int(send_raw(server, request.encode()).split(b" ", 2)[1])


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "DELETE", "TRACE", "PUT"])
@pytest.mark.parametrize(
    "target",
    [
        "/v1/projects",
        "/v1/projects/",
        "//v1/projects",
        "/v1//projects",
        "/v1/./projects",
        "/healthz/../v1/projects",
        "/v1/health/../projects",
        "/%76%31/projects",
        "/v1%2Fprojects",
        "/V1/projects",
        "/v1/PROJECTS",
        "/v1/projects;x=1",
        "/v1/projects%00",
        "/v1/projects%2e",
        "/docs/../v1/projects",
        "/docs/assets/../../v1/projects",
        "/v1/projects?key=cmem_a_b",
        "http://localhost/v1/projects",
    ],
)
def test_no_spelling_of_a_path_bypasses_authentication(server: Server, method: str, target: str):
    """The route decides whether it is public, never the text of the path."""
    asks_about_public_files = method == "OPTIONS" and target.startswith("/docs/assets/")
    assert status_of(server, method, target) in (400, 401, 404, 405, *((204,) if asks_about_public_files else ()))


@pytest.mark.parametrize("target", ["/healthzX", "/v1/healthX", "/v1/docsecret", "/docs/../healthz/x", "/v1/info/x"])
def test_prefix_of_a_public_path_is_not_public(server: Server, target: str):
    """Only the exact paths are public."""
    assert status_of(server, "GET", target) in (400, 401, 404)


def test_project_named_like_a_public_path_is_not_public(server: Server, team: Tenant):
    """Names of projects decide nothing."""
    team.http.post("/v1/projects", json={"name": "health", "slug": "healthz"})

    assert status_of(server, "GET", "/v1/projects/healthz") == 401


def test_head_requires_a_key_like_get(server: Server, team: Tenant):
    """With one, it returns the headers without a body."""
    assert status_of(server, "HEAD", "/v1/projects") == 401
    reply = team.http.head("/v1/projects")
    assert (reply.status_code, reply.content) == (200, b"")


def test_every_reply_has_security_headers(server: Server, team: Tenant):
    """Also errors and unknown paths."""
    with client(server, None) as nobody:
        replies = [team.http.get("/v1/projects"), nobody.get("/v1/projects"), nobody.get("/nothing")]

    for reply in replies:
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["X-Frame-Options"] == "DENY"
        assert reply.headers["Cache-Control"] == "no-store"


def preflight(http: httpx.Client, origin: str) -> httpx.Response:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    return http.options("/v1/search", headers={"Origin": origin, **asked})


def test_no_cors_headers_by_default(server: Server, team: Tenant):
    """Neither for a preflight nor for a request."""
    with client(server, None) as nobody:
        replies = [preflight(nobody, PAGE), team.http.get("/v1/projects", headers={"Origin": PAGE})]

    assert [name for reply in replies for name in reply.headers if name.startswith("access-control")] == []


def test_configured_origins_may_call_the_api(start_server: Callable[..., Server]):
    """No others may, and the browser's own credentials are never allowed."""
    server = start_server(cors_origins=[PAGE])
    with client(server, None) as http:
        named, other = preflight(http, PAGE), preflight(http, "http://evil.example")
        refused = http.get("/v1/projects", headers={"Origin": PAGE})

    assert named.headers["Access-Control-Allow-Origin"] == PAGE
    assert "authorization" in named.headers["Access-Control-Allow-Headers"].lower()
    assert "Access-Control-Allow-Credentials" not in named.headers
    assert "Access-Control-Allow-Origin" not in other.headers
    assert refused.status_code == 401


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "a/b"])
def test_media_types_that_a_web_page_may_post_are_rejected(team: Tenant, media: str):
    """A page may post text and forms to loopback without a preflight, but not JSON."""
    body = b'{"projectId": "%s", "content": "x"}' % team.project_id.encode()

    assert team.http.post("/v1/memories", content=body, headers={"Content-Type": media}).status_code == 415


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip", "x"])
def test_compressed_body_is_rejected(team: Tenant, encoding: str):
    """So nothing small can be decompressed to gigabytes."""
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}

    assert team.http.post("/v1/memories", content=b"{}", headers=headers).status_code == 415


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 50_000, b'{"metadata":' + b"[" * 40 + b"]" * 40 + b"}"])
def test_deep_nesting_is_rejected_quickly(team: Tenant, body: bytes):
    """400, without a stack overflow."""
    reply = team.http.post("/v1/memories", content=body, headers={"Content-Type": "application/json"})

    assert reply.status_code == 400
    assert reply.elapsed.total_seconds() < 2


def test_body_announced_as_too_large_is_rejected_unread(server: Server, team: Tenant):
    """413 after the headers, before any byte of the body."""
    request = (
        f"POST /v1/memories HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {team.api_key}\r\nConnection: close\r\n"
        "Content-Type: application/json\r\nContent-Length: 900000000\r\n\r\n"
    )

    assert send_raw(server, request.encode()).split(b" ", 2)[1] == b"413"


def test_chunked_body_is_rejected_once_it_is_too_large(start_server: Callable[..., Server]):
    """It has no announced length, so it is counted, and rejected before it ends."""
    server = start_server(max_body_bytes=100_000)
    team = make_tenant(server, "a")
    team.http.close()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(
            f"POST /v1/memories HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {team.api_key}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        sent = 0
        while sent < 200 and not select.select([connection], [], [], 0.05)[0]:
            connection.sendall(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
            sent += 1
        reply = connection.recv(65536)

    assert reply.split(b" ", 2)[1] == b"413"
    assert 10 <= sent < 20


def test_body_without_a_credential_is_not_read(server: Server):
    """401 comes first."""
    request = (
        "POST /v1/memories HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        "Content-Type: application/json\r\nContent-Length: 900000000\r\n\r\n"
    )

    assert send_raw(server, request.encode()).split(b" ", 2)[1] == b"401"


def forge_keys(databases: Databases, folder: Path) -> list[str]:
    """Fill a database with keys; return one with a wrong secret for each of them."""
    database = Database(databases.url(folder))
    secret_hash = credentials.hash_secret("the same for all")
    minted = [credentials.mint() for _ in range(MORE_GUESSES_THAN_A_PEER_MAY_MAKE)]
    with database.write() as connection:
        owner = server_owner().within(teams.create(connection, server_owner(), name="a").id)
        for key in minted:
            keys.create(connection, owner, keys.NewKey(), key, secret_hash)
    database.close()
    return [credentials.format_key(key) for key in minted]


@pytest.mark.parametrize(("proxies", "statuses"), [("127.0.0.1", {401}), ("192.0.2.99", {401, 429}), ("", {401, 429})])
def test_forwarded_addresses_are_trusted_only_from_known_proxies(
    databases: Databases, home: Home, proxies: str, statuses: set[int]
):
    """Otherwise an attacker could name another address with each guess."""
    guesses = forge_keys(databases, home.folder)
    with (
        home.serving(trusted_proxies=proxies) as started,
        httpx.Client(base_url=started.url, trust_env=False) as http,
    ):
        replies = [
            http.get("/v1/auth/whoami", headers={"X-Api-Key": guess, "X-Forwarded-For": f"192.0.2.{number}"})
            for number, guess in enumerate(guesses)
        ]

    assert {reply.status_code for reply in replies} == statuses


def test_local_dev_rejects_requests_that_a_proxy_forwarded(home: Home):
    """The proxy is on this machine, but its clients are not."""
    local = {"auth_mode": "local-dev", "allow_local_dev_bypass": "1", "trusted_proxies": "127.0.0.1"}
    with home.serving(**local) as started:
        own = httpx.get(f"{started.url}/v1/projects", trust_env=False)
        forwarded = httpx.get(f"{started.url}/v1/projects", headers={"X-Forwarded-For": "127.0.0.1"}, trust_env=False)

    assert (own.status_code, forwarded.status_code) == (200, 401)


SECRETS = {
    "jwt_secret": "kw3vN8Qz1LxTfR5yUo9pDg7sHj2mBc4A",
    "jwt_previous_secret": "Zx8cVb6nMa1sDf3gHj5kLq7wEr9tYu2i",
    "embedder_api_key": "sk-Pq0wOe9iRu8tYl7kJh6gFd5sAz4x",
}


def test_no_reply_contains_a_secret_from_the_settings(start_server: Callable[..., Server]):
    """Neither the replies that describe the server nor its errors."""
    server = start_server(**SECRETS)
    team = make_tenant(server, "a")
    with team.http as http, client(server, None) as nobody:
        public = [
            nobody.get(path) for path in ("/healthz", "/readyz", "/v1/info", "/openapi.json", "/docs", "/api/health")
        ]
        known = [
            http.get(path) for path in ("/v1/auth/whoami", "/v1/keys", "/v1/teams", "/v1/vectors/status", "/nothing")
        ]
    shown = "".join(str(reply.headers) + reply.text for reply in public + known)

    assert [name for name, secret in SECRETS.items() if secret in shown] == []


@pytest.mark.parametrize("secret", ["short", " " * 40, "change-me-change-me-change-me-change-me", "a" * 40])
def test_weak_signing_secret_prevents_the_start(tmp_path: Path, secret: str):
    """Too short, blank, or copied from documentation: one line, without the value."""
    environment = {**os.environ, "CMEM_DATA_DIR": str(tmp_path), "CMEM_JWT_SECRET": secret, "CMEM_VECTORS": "off"}
    command = [sys.executable, "-m", "app", "serve", "--port", "0"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    assert ended.returncode != 0
    assert "CMEM_JWT_SECRET" in ended.stderr
    assert secret not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


def test_empty_signing_secret_counts_as_unset(tmp_path: Path):
    """A secret is generated; the empty text is never used."""
    with serving(tmp_path, jwt_secret=""):
        pass
    assert len((tmp_path / "jwt-secret").read_text()) >= 32


def test_corrupt_signing_secret_prevents_the_start(tmp_path: Path):
    """One line names the file."""
    (tmp_path / "jwt-secret").write_text("")
    environment = {**os.environ, "CMEM_DATA_DIR": str(tmp_path), "CMEM_VECTORS": "off"}
    command = [sys.executable, "-m", "app", "serve", "--port", "0"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    assert ended.returncode != 0
    assert "jwt-secret" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("path", ["/v1/memories/a%00b", "/v1/projects/%00/stats", "/v1/teams/%00/members"])
def test_nul_in_the_path_is_404(team: Tenant, path: str):
    """In either database: no id contains one."""
    assert team.http.get(path).status_code == 404
