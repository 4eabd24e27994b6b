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
    Route,
    Things,
    contracted,
    routes,
)
from tests.conftest import Server, client, make_key

SCOPES = (READ, WRITE, KEYS, AUDIT, ADMIN)
ROLES = {"viewer": {READ}, "member": {READ, WRITE}, "admin": set(SCOPES), "owner": set(SCOPES)}
"""What API.md says of the roles, once more: the code's own table must not be its own proof."""


@dataclass(frozen=True)
class Credential:
    """A kind of credential. `reach`: the whole team, its project, another project, another team, or no team."""

    name: str
    scopes: frozenset[str] = frozenset()
    reach: str = "team"
    role: str | None = None
    is_over: bool = False
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
    Credential("expired", frozenset({"*"}), is_over=True),
    Credential("revoked", frozenset({"*"}), is_over=True),
]
CREDENTIALS = [
    Credential("no key", is_over=True),
    *KINDS,
    *(replace(kind, name=f"token of {kind.name}", is_token=True) for kind in KINDS),
]


def expected(route: Route, who: Credential) -> int:
    """Return the status that a route owes a credential."""
    if route.row.scope == PUBLIC:
        return route.success
    if who.is_over:
        return 401
    if route.operation_id in SPECIAL and (status := SPECIAL[route.operation_id](who)) is not None:
        return status
    if not who.may(route.row.scope):
        return 403
    if who.reach in ("other team", "server") or (who.reach == "other project" and route.operation_id not in OF_TEAM):
        return {"id": 404, "project": 403, None: route.success}[route.row.names]
    return route.success


OF_TEAM = {"getTeam", "updateTeam", "deleteTeam", "listMembers", "createMember", "updateMember", "deleteMember"}
PROJECT_REACH = ("project", "other project")


def _team(who: Credential) -> int | None:
    """Who administers the server sees and changes every team."""
    return 200 if SERVER in who.scopes else _whole_team(who)


def _whole_team(who: Credential) -> int | None:
    """A project key does not change the team; it may read it."""
    return 403 if who.reach in PROJECT_REACH else None


def _members(who: Credential) -> int | None:
    """Somebody of no team acts in any that he names, if his scopes say so."""
    return 0 if who.reach == "server" and "*" in who.scopes else _whole_team(who)


def _delete_team(who: Credential) -> int | None:
    if SERVER in who.scopes:
        return 200
    if who.reach == "team" and who.may(ADMIN) and who.role != "owner" and "*" not in who.scopes:
        return 403
    return _whole_team(who)


def _no_token(who: Credential) -> int | None:
    return 403 if who.is_token else None


def _own_key(who: Credential) -> int | None:
    """A member's key touches his own only; a token does not touch what lives longer."""
    return 403 if who.may(KEYS) and who.reach in ("team", "project") and (who.role or who.is_token) else None


def _rotate(who: Credential) -> int | None:
    return _no_token(who) or _own_key(who)


def _create_project(who: Credential) -> int | None:
    return 403 if who.reach in (*PROJECT_REACH, "server") else None


SPECIAL = {
    "createToken": _no_token,
    "createKey": _no_token,
    "listTeams": lambda who: 200 if SERVER in who.scopes else None,
    "createTeam": lambda who: 201 if SERVER in who.scopes else 403,
    "getTeam": lambda who: 200 if SERVER in who.scopes else None,
    "updateTeam": _team,
    "deleteTeam": _delete_team,
    "listMembers": _members,
    "createMember": _members,
    "updateMember": _members,
    "deleteMember": _members,
    "rotateKey": _rotate,
    "updateKey": _own_key,
    "createProject": _create_project,
    "getVectorStatus": lambda who: 200 if who.reach == "server" else None,
    "getOperation": lambda who: 404 if who.reach == "server" else None,
}
"""Where more than a scope decides. None: the general rule holds; 0: success."""


class World:
    """A team with two projects, another team, and a client for every kind of credential."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.owner, self.project = self.make_team()
        self.other_team, _ = self.make_team()
        with server.database.write() as connection:
            self.other_project = projects.create(connection, self.owner, name="other").id
        self.clients = {who.name: self.client(who, self.owner, self.project) for who in CREDENTIALS}
        self.end_what_is_over()

    def make_team(self) -> tuple[Caller, str]:
        """Make a team with a member of every role; return its owner and a project."""
        with self.server.database.write() as connection:
            owner = server_owner().within(teams.create(connection, server_owner(), name="matrix").id)
            for role in ROLES:
                members.add(connection, owner, user_id=role, role=role)  # type: ignore[arg-type]
            return owner, projects.create(connection, owner, name="own").id

    def client(self, who: Credential, owner: Caller, project: str) -> httpx.Client:
        """Return a client with a credential of that kind, seen from a team and its project."""
        if who.name == "no key":
            return client(self.server, None)
        maker = {"other team": self.other_team, "server": server_owner()}.get(who.reach, owner)
        key = make_key(
            self.server.database,
            maker,
            scopes=(EVERYTHING,) if who.role else tuple(who.scopes),
            project_id={"project": project, "other project": self.other_project}.get(who.reach),
            user_id=who.role,
        )
        http = client(self.server, key)
        if not who.is_token:
            return http
        with http:
            return client(self.server, http.post("/v1/auth/token", json={}).json()["accessToken"])

    def end_what_is_over(self) -> None:
        for who in CREDENTIALS:
            if who.is_over and who.name != "no key":
                key_id = self.clients[who.name].get("/v1/auth/whoami").json()["keyId"]
                column = "expires_at_epoch" if "expired" in who.name else "revoked_at_epoch"
                with self.server.database.write() as connection:
                    connection.execute(update(api_keys).where(api_keys.c.id == key_id).values({column: now_ms() - 1}))

    def things(self, owner: Caller, project: str) -> Things:
        """Make one thing of each kind."""
        with self.server.database.write() as connection:
            memory, _ = memories.add(
                connection,
                owner,
                memories.NewMemory(project_id=project, kind="manual", type="manual", narrative=unique()),
            )
            start = sessions.Start(project_id=project, external_session_id=unique())
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
        return Things(owner.team_id, project, memory.id, session.id, event.id, key.id, member.user_id, operation.id)


def unique() -> str:
    return os.urandom(8).hex()


@pytest.fixture(scope="module")
def world(server: Server) -> Iterator[World]:
    made = World(server)
    yield made
    for http in made.clients.values():
        http.close()


def test_every_route_has_a_row_in_the_table():
    """Whoever adds a route says in tests/api/routes.py who may use it."""
    assert contracted().keys() == TABLE.keys()


ENDS_THE_WORLD = ("deleteTeam", "deleteProject", "purgeProjectMemory")


@pytest.mark.parametrize("who", CREDENTIALS, ids=lambda who: who.name)
@pytest.mark.parametrize("route", routes(), ids=lambda route: route.operation_id)
def test_matrix(world: World, route: Route, who: Credential):
    """The status is the one that the table says."""
    status = expected(route, who) or route.success
    if route.operation_id in ENDS_THE_WORLD and status == 200:
        owner, project = world.make_team()
        with world.client(who, owner, project) as http:
            reply = route.send(http, world.things(owner, project))
    else:
        reply = route.send(world.clients[who.name], world.things(world.owner, world.project))

    assert reply.status_code == status, reply.text
