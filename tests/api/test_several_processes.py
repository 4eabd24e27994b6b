"""Two server processes on one database: a right revoked in one is gone in the other with the next request."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from sqlalchemy import update

from app.caller import EVERYTHING, MEMORIES_READ, server_owner
from app.clock import now_ms
from app.services.identity import teams
from app.store.database import Database
from app.store.models import api_keys
from tests.conftest import make_key
from tests.databases import Databases
from tests.serving import Home


@dataclass(frozen=True)
class Pair:
    """Two processes, their database, and the `*` key of a team."""

    one: str
    other: str
    database: Database
    team_id: str
    api_key: str

    def send(
        self, address: str, method: str, path: str, credential: str | None = None, **sent: object
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {credential or self.api_key}"}
        return httpx.request(method, address + path, headers=headers, trust_env=False, timeout=30, **sent)  # type: ignore[arg-type]

    def create_key(self, **body: object) -> dict[str, str]:
        """Create a key in the first process and use it in both, so that both have verified it."""
        key = self.send(self.one, "POST", "/v1/keys", json=body).json()
        assert self.statuses(key["apiKey"]) == [200, 200]
        return key

    def statuses(self, credential: str, path: str = "/v1/memories") -> list[int]:
        return [self.send(address, "GET", path, credential).status_code for address in (self.one, self.other)]


@pytest.fixture(scope="module")
def pair(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    home = Home(folder, databases.initial_settings(folder))
    with home.serving() as one, home.serving() as other, home.database() as database:
        with database.write() as connection:
            team = teams.create(connection, server_owner(), name="pair")
        api_key = make_key(database, server_owner().within(team.id), scopes=(EVERYTHING,))
        yield Pair(one.url, other.url, database, team.id, api_key)
    databases.drop(folder)


def test_key_revoked_in_one_process_is_rejected_in_the_other(pair: Pair):
    """With the next request, although that process has already verified it."""
    key = pair.create_key()

    pair.send(pair.one, "DELETE", f"/v1/keys/{key['id']}")

    assert pair.send(pair.other, "GET", "/v1/memories", key["apiKey"]).status_code == 401


def test_token_works_in_both_processes_until_its_key_is_revoked(pair: Pair):
    """Both sign with the same secret, and read the key's row on every request."""
    key = pair.create_key()
    token = pair.send(pair.one, "POST", "/v1/auth/token", key["apiKey"], json={}).json()["accessToken"]
    assert pair.statuses(token) == [200, 200]

    pair.send(pair.one, "DELETE", f"/v1/keys/{key['id']}")

    assert pair.send(pair.other, "GET", "/v1/memories", token).status_code == 401


def test_rotated_key_expires_in_both_processes_after_its_overlap(pair: Pair):
    """After two seconds."""
    key = pair.create_key()
    new = pair.send(pair.one, "POST", f"/v1/keys/{key['id']}/rotate", json={"overlapSeconds": 2}).json()
    assert pair.statuses(key["apiKey"]) == [200, 200]

    time.sleep(2.1)

    assert pair.statuses(key["apiKey"]) == [401, 401]
    assert pair.statuses(new["apiKey"]) == [200, 200]


def test_expired_key_is_rejected_in_both_processes(pair: Pair):
    """Its row has the time."""
    key = pair.create_key(expiresInDays=1)
    with pair.database.write() as connection:
        connection.execute(update(api_keys).where(api_keys.c.id == key["id"]).values(expires_at_epoch=now_ms()))

    assert pair.statuses(key["apiKey"]) == [401, 401]


def test_member_demoted_in_one_process_loses_scopes_in_the_other(pair: Pair):
    """The role is read together with the key."""
    members = f"/v1/teams/{pair.team_id}/members"
    pair.send(pair.one, "POST", members, json={"userId": "ann", "role": "admin"})
    key = pair.create_key(userId="ann", scopes=[EVERYTHING])
    assert pair.statuses(key["apiKey"], "/v1/keys") == [200, 200]

    pair.send(pair.one, "PATCH", f"{members}/ann", json={"role": "viewer"})

    assert pair.statuses(key["apiKey"], "/v1/keys") == [403, 403]
    pair.send(pair.one, "DELETE", f"{members}/ann")
    assert pair.statuses(key["apiKey"]) == [401, 401]


def test_scopes_removed_in_one_process_are_gone_in_the_other(pair: Pair):
    """Also for its tokens."""
    key = pair.create_key(scopes=[MEMORIES_READ, "audit:read"])
    token = pair.send(pair.one, "POST", "/v1/auth/token", key["apiKey"], json={}).json()["accessToken"]
    assert pair.statuses(token, "/v1/audit") == [200, 200]

    pair.send(pair.one, "PATCH", f"/v1/keys/{key['id']}", json={"scopes": [MEMORIES_READ]})

    assert pair.statuses(key["apiKey"], "/v1/audit") == pair.statuses(token, "/v1/audit") == [403, 403]


def test_keys_of_a_deleted_team_are_rejected_in_the_other_process(pair: Pair):
    """And so are their tokens."""
    with pair.database.write() as connection:
        gone = teams.create(connection, server_owner(), name="gone")
    api_key = make_key(pair.database, server_owner().within(gone.id), scopes=(EVERYTHING,))
    token = pair.send(pair.other, "POST", "/v1/auth/token", api_key, json={}).json()["accessToken"]
    assert pair.statuses(api_key) == pair.statuses(token) == [200, 200]

    pair.send(pair.one, "DELETE", f"/v1/teams/{gone.id}", api_key)

    assert pair.statuses(api_key) == pair.statuses(token) == [401, 401]
