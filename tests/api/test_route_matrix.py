"""Every route of the contract against every kind of credential: the expected status comes from one table."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import httpx
import pytest
from sqlalchemy import update

from app.caller import EVERYTHING, Caller, server_owner
from app.clock import now_ms
from app.services.identity import keys, members, teams
from app.services.identity.credentials import PresentedKey
from app.services.memories import memories
from app.services.operations import jobs
from app.services.projects import events, projects, sessions
from app.store.models import api_keys
from tests.api.route_table import (
    ADMIN,
    ANY,
    AUDIT,
    KEYS,
    PUBLIC,
    READ,
    SERVER,
    TABLE,
    WRITE,
    ResourceIds,
    Route,
    operations,
    routes,
)
from tests.conftest import Server, client, make_key

SCOPES = (READ, WRITE, KEYS, AUDIT, ADMIN)
ROLES = {"viewer": {READ}, "member": {READ, WRITE}, "admin": set(SCOPES), "owner": set(SCOPES)}
"""The documented scopes of the roles, written out again: the table in the code must not prove itself."""


@dataclass(frozen=True)
class Credential:
    """A kind of credential. `reach`: the whole team, its project, another project, another team, or no team."""

    name: str
    scopes: frozenset[str] = frozenset()
    reach: str = "team"
    role: str | None = None
    is_invalid: bool = False
    is_token: bool = False

    def may(self, scope: str) -> bool:
        return scope in self.scopes or scope == ANY or ("*" in self.scopes and scope in SCOPES)


KINDS = [
    *(Credential(scope, frozenset({scope})) for scope in SCOPES),
    *(Credential(role, frozenset(scopes), role=role) for role, scopes in ROLES.items()),
    Credential("star", frozenset({"*"})),
    Credential("project key", frozenset({"*"}), "project"),
    Credential("key of another project", frozenset({"*"}), "other project"),
    Credential("key of another team", frozenset({"*"}), "other team"),
    Credential("server:admin", frozenset({SERVER}), "server"),
    Credential("star of no team", frozenset({"*", SERVER}), "server"),
    Credential("expired", frozenset({"*"}), is_invalid=True),
    Credential("revoked", frozenset({"*"}), is_invalid=True),
]
CREDENTIALS = [
    Credential("no key", is_invalid=True),
    *KINDS,
    *(replace(kind, name=f"token of {kind.name}", is_token=True) for kind in KINDS),
]


def expected_status(route: Route, credential: Credential) -> int:
    """Return the status that a route must return to a credential."""
    if route.row.scope == PUBLIC:
        return route.success
    if credential.is_invalid:
        return 401
    if route.operation_id in SPECIAL and (status := SPECIAL[route.operation_id](credential)) is not None:
        return status
    if not credential.may(route.row.scope):
        return 403
    if credential.reach in ("other team", "server") or (
        credential.reach == "other project" and route.operation_id not in OF_TEAM
    ):
        return {"id": 404, "project": 403, None: route.success}[route.row.names]
    return route.success


OF_TEAM = {"getTeam", "updateTeam", "deleteTeam", "listMembers", "createMember", "updateMember", "deleteMember"}
PROJECT_REACH = ("project", "other project")


def _team(credential: Credential) -> int | None:
    """A server administrator can see and change every team."""
    return 200 if SERVER in credential.scopes else _whole_team(credential)


def _whole_team(credential: Credential) -> int | None:
    """A project key cannot change the team, only read it."""
    return 403 if credential.reach in PROJECT_REACH else None


def _members(credential: Credential) -> int | None:
    """A credential without a team can act in any team that it names, if its scopes allow it."""
    return 0 if credential.reach == "server" and "*" in credential.scopes else _whole_team(credential)


def _delete_team(credential: Credential) -> int | None:
    if SERVER in credential.scopes:
        return 200
    if (
        credential.reach == "team"
        and credential.may(ADMIN)
        and credential.role != "owner"
        and "*" not in credential.scopes
    ):
        return 403
    return _whole_team(credential)


def _no_token(credential: Credential) -> int | None:
    return 403 if credential.is_token else None


def _own_key(credential: Credential) -> int | None:
    """A member's key may change that member's keys only; a token may not change what outlives it."""
    return (
        403
        if credential.may(KEYS) and credential.reach in ("team", "project") and (credential.role or credential.is_token)
        else None
    )


def _rotate(credential: Credential) -> int | None:
    return _no_token(credential) or _own_key(credential)


def _create_project(credential: Credential) -> int | None:
    return 403 if credential.reach in (*PROJECT_REACH, "server") else None


SPECIAL = {
    "createToken": _no_token,
    "createKey": _no_token,
    "listTeams": lambda credential: 200 if SERVER in credential.scopes else None,
    "createTeam": lambda credential: 201 if SERVER in credential.scopes else 403,
    "getTeam": lambda credential: 200 if SERVER in credential.scopes else None,
    "updateTeam": _team,
    "deleteTeam": _delete_team,
    "listMembers": _members,
    "createMember": _members,
    "updateMember": _members,
    "deleteMember": _members,
    "rotateKey": _rotate,
    "updateKey": _own_key,
    "createProject": _create_project,
    "getVectorStatus": lambda credential: 200 if credential.reach == "server" else None,
    "getOperation": lambda credential: 404 if credential.reach == "server" else None,
}
"""Routes where more than the scope decides. None: the general rule applies; 0: success."""


class MatrixTeams:
    """A team with two projects, another team, and a client for every kind of credential."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.owner, self.project = self.make_team()
        self.other_team, _ = self.make_team()
        with server.database.write() as connection:
            self.other_project = projects.create(connection, self.owner, name="other").id
        self.clients = {
            credential.name: self.client(credential, self.owner, self.project) for credential in CREDENTIALS
        }
        self.invalidate_credentials()

    def make_team(self) -> tuple[Caller, str]:
        """Create a team with a member of every role; return its owner and a project."""
        with self.server.database.write() as connection:
            owner = server_owner().within(teams.create(connection, server_owner(), name="matrix").id)
            for role in ROLES:
                members.add(connection, owner, user_id=role, role=role)  # type: ignore[arg-type]
            return owner, projects.create(connection, owner, name="own").id

    def client(self, credential: Credential, owner: Caller, project: str) -> httpx.Client:
        """Return a client with a credential of that kind, relative to a team and its project."""
        if credential.name == "no key":
            return client(self.server, None)
        maker = {"other team": self.other_team, "server": server_owner()}.get(credential.reach, owner)
        key = make_key(
            self.server.database,
            maker,
            scopes=(EVERYTHING,) if credential.role else tuple(credential.scopes),
            project_id={"project": project, "other project": self.other_project}.get(credential.reach),
            user_id=credential.role,
        )
        http = client(self.server, key)
        if not credential.is_token:
            return http
        with http:
            return client(self.server, http.post("/v1/auth/token", json={}).json()["accessToken"])

    def invalidate_credentials(self) -> None:
        for credential in CREDENTIALS:
            if credential.is_invalid and credential.name != "no key":
                key_id = self.clients[credential.name].get("/v1/auth/whoami").json()["keyId"]
                column = "expires_at_epoch" if "expired" in credential.name else "revoked_at_epoch"
                with self.server.database.write() as connection:
                    connection.execute(update(api_keys).where(api_keys.c.id == key_id).values({column: now_ms() - 1}))

    def create_resources(self, owner: Caller, project: str) -> ResourceIds:
        """Create one resource of each kind."""
        with self.server.database.write() as connection:
            memory, _ = memories.add(
                connection,
                owner,
                memories.NewMemory(project_id=project, kind="manual", type="manual", narrative=unique()),
            )
            start = sessions.NewSession(project_id=project, external_session_id=unique())
            session, _ = sessions.start(connection, owner, start)
            new_event = events.NewEvent(
                project_id=project, source_type="hook", event_type=unique(), occurred_at_epoch=1
            )
            event, _ = events.add(connection, owner, new_event)
            new_key = keys.NewKey(scopes=(KEYS,), project_id=project)
            key = keys.create(connection, owner, new_key, PresentedKey(unique(), ""), "never presented")
            member = members.add(connection, owner, user_id=unique(), role="viewer")
            operation = jobs.create(connection, owner, "test", project_id=project, arguments={})
        assert owner.team_id is not None
        return ResourceIds(
            owner.team_id, project, memory.id, session.id, event.id, key.id, member.user_id, operation.id
        )


def unique() -> str:
    return os.urandom(8).hex()


@pytest.fixture(scope="module")
def matrix(server: Server) -> Iterator[MatrixTeams]:
    matrix = MatrixTeams(server)
    yield matrix
    for http in matrix.clients.values():
        http.close()


def test_every_route_has_a_row_in_the_table():
    """tests/api/route_table.py says which callers may use a new route."""
    assert operations().keys() == TABLE.keys()


DELETES_SHARED_DATA = ("deleteTeam", "deleteProject", "purgeProjectMemory")


@pytest.mark.parametrize("credential", CREDENTIALS, ids=lambda credential: credential.name)
@pytest.mark.parametrize("route", routes(), ids=lambda route: route.operation_id)
def test_route_returns_the_expected_status(matrix: MatrixTeams, route: Route, credential: Credential):
    """It is the one in the table."""
    status = expected_status(route, credential) or route.success
    if route.operation_id in DELETES_SHARED_DATA and status == 200:
        owner, project = matrix.make_team()
        with matrix.client(credential, owner, project) as http:
            reply = route.send(http, matrix.create_resources(owner, project))
    else:
        reply = route.send(matrix.clients[credential.name], matrix.create_resources(matrix.owner, matrix.project))

    assert reply.status_code == status, reply.text
