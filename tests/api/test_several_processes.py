"""Two server processes on one database: what one takes away, the other refuses with the next request."""

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
from tests.serving import Home
from tests.stores import Stores


@dataclass(frozen=True)
class Pair:
    """Two processes, their database, and the `*` key of a team."""

    one: str
    other: str
    database: Database
    team_id: str
    api_key: str

    def ask(
        self, address: str, method: str, path: str, credential: str | None = None, **sent: object
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {credential or self.api_key}"}
        return httpx.request(method, address + path, headers=headers, trust_env=False, timeout=30, **sent)  # type: ignore[arg-type]

    def make(self, **body: object) -> dict[str, str]:
        """Make a key in the first process and use it in both, so that both have proven it."""
        made = self.ask(self.one, "POST", "/v1/keys", json=body).json()
        assert self.statuses(made["apiKey"]) == [200, 200]
        return made

    def statuses(self, credential: str, path: str = "/v1/memories") -> list[int]:
        return [self.ask(address, "GET", path, credential).status_code for address in (self.one, self.other)]


@pytest.fixture(scope="module")
def pair(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    home = Home(folder, stores.first_settings(folder))
    with home.serving() as one, home.serving() as other, home.database() as database:
        with database.write() as connection:
            team = teams.create(connection, server_owner(), name="pair")
        api_key = make_key(database, server_owner().within(team.id), scopes=(EVERYTHING,))
        yield Pair(one.url, other.url, database, team.id, api_key)
    stores.forget(folder)


def test_a_key_revoked_in_one_process_is_refused_in_the_other(pair: Pair):
    """With the next request, though its proof is remembered there."""
    key = pair.make()

    pair.ask(pair.one, "DELETE", f"/v1/keys/{key['id']}")

    assert pair.ask(pair.other, "GET", "/v1/memories", key["apiKey"]).status_code == 401


def test_a_token_of_one_process_is_good_in_the_other_and_dies_with_its_key(pair: Pair):
    """Both sign with one secret, and read the key's row on every request."""
    key = pair.make()
    token = pair.ask(pair.one, "POST", "/v1/auth/token", key["apiKey"], json={}).json()["accessToken"]
    assert pair.statuses(token) == [200, 200]

    pair.ask(pair.one, "DELETE", f"/v1/keys/{key['id']}")

    assert pair.ask(pair.other, "GET", "/v1/memories", token).status_code == 401


def test_a_rotated_key_ends_in_both_processes_with_its_overlap(pair: Pair):
    """Two seconds of overlap, and no longer."""
    key = pair.make()
    new = pair.ask(pair.one, "POST", f"/v1/keys/{key['id']}/rotate", json={"overlapSeconds": 2}).json()
    assert pair.statuses(key["apiKey"]) == [200, 200]

    time.sleep(2.1)

    assert pair.statuses(key["apiKey"]) == [401, 401]
    assert pair.statuses(new["apiKey"]) == [200, 200]


def test_an_expired_key_is_refused_in_both_processes(pair: Pair):
    """The row says when."""
    key = pair.make(expiresInDays=1)
    with pair.database.write() as connection:
        connection.execute(update(api_keys).where(api_keys.c.id == key["id"]).values(expires_at_epoch=now_ms()))

    assert pair.statuses(key["apiKey"]) == [401, 401]


def test_a_member_demoted_in_one_process_loses_it_in_the_other(pair: Pair):
    """His role is read with his key."""
    members = f"/v1/teams/{pair.team_id}/members"
    pair.ask(pair.one, "POST", members, json={"userId": "ann", "role": "admin"})
    key = pair.make(userId="ann", scopes=[EVERYTHING])
    assert pair.statuses(key["apiKey"], "/v1/keys") == [200, 200]

    pair.ask(pair.one, "PATCH", f"{members}/ann", json={"role": "viewer"})

    assert pair.statuses(key["apiKey"], "/v1/keys") == [403, 403]
    pair.ask(pair.one, "DELETE", f"{members}/ann")
    assert pair.statuses(key["apiKey"]) == [401, 401]


def test_a_key_narrowed_in_one_process_is_narrow_in_the_other(pair: Pair):
    """Its tokens too."""
    key = pair.make(scopes=[MEMORIES_READ, "audit:read"])
    token = pair.ask(pair.one, "POST", "/v1/auth/token", key["apiKey"], json={}).json()["accessToken"]
    assert pair.statuses(token, "/v1/audit") == [200, 200]

    pair.ask(pair.one, "PATCH", f"/v1/keys/{key['id']}", json={"scopes": [MEMORIES_READ]})

    assert pair.statuses(key["apiKey"], "/v1/audit") == pair.statuses(token, "/v1/audit") == [403, 403]


def test_the_keys_of_a_team_deleted_in_one_process_open_nothing_in_the_other(pair: Pair):
    """Nor do its tokens."""
    with pair.database.write() as connection:
        gone = teams.create(connection, server_owner(), name="gone")
    api_key = make_key(pair.database, server_owner().within(gone.id), scopes=(EVERYTHING,))
    token = pair.ask(pair.other, "POST", "/v1/auth/token", api_key, json={}).json()["accessToken"]
    assert pair.statuses(api_key) == pair.statuses(token) == [200, 200]

    pair.ask(pair.one, "DELETE", f"/v1/teams/{gone.id}", api_key)

    assert pair.statuses(api_key) == pair.statuses(token) == [401, 401]
