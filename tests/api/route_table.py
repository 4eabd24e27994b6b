"""Every route in one table: which scope it needs and whose things it names. The matrix and the stranger are made of it.

A new route gets a row here; without one, tests/api/test_matrix.py fails and says so.
"""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from app.cli import openapi
from tests import ROOT

READ, WRITE, KEYS, AUDIT, ADMIN, SERVER = (
    "memories:read",
    "memories:write",
    "keys:write",
    "audit:read",
    "team:admin",
    "server:admin",
)
ANY = "any"
PUBLIC = "public"


@dataclass(frozen=True)
class Things:
    """Ids of one thing of each kind, all of one team and of one project of it."""

    team: str
    project: str
    memory: str
    session: str
    event: str
    key: str
    member: str
    operation: str

    @property
    def in_path(self) -> dict[str, str]:
        return {
            "teamId": self.team,
            "projectId": self.project,
            "memoryId": self.memory,
            "sessionId": self.session,
            "eventId": self.event,
            "keyId": self.key,
            "userId": self.member,
            "operationId": self.operation,
        }


def nobodys() -> Things:
    """Return ids that nothing has."""
    return Things(*[str(uuid.uuid4()) for _ in Things.__dataclass_fields__])


Body = Callable[[Things], Any]


@dataclass(frozen=True)
class Row:
    """A route: the scope it needs, what of somebody's it names, and a request that succeeds for whoever may.

    `names`: "id" in the path or as a reference, which reads 404 from outside; "project" as an argument, which reads
    403 from outside; None when everybody gets his own. `success` is the status where it is not the contract's.
    """

    scope: str
    names: Literal["id", "project"] | None = None
    body: Body | None = None
    query: Body | None = None
    content: tuple[bytes, str] | None = None
    success: int | None = None


def memory(things: Things) -> dict[str, Any]:
    return {"projectId": things.project, "content": f"a memory of {uuid.uuid4()}"}


def event(things: Things) -> dict[str, Any]:
    return {"projectId": things.project, "sourceType": "hook", "eventType": str(uuid.uuid4()), "occurredAtEpoch": 1}


def conversation(things: Things) -> dict[str, Any]:
    said = {"role": "user", "content": f"What is {uuid.uuid4()}?"}
    return {"projectId": things.project, "sessionId": things.session, "messages": [said]}


def of_project(things: Things) -> dict[str, Any]:
    return {"projectId": things.project}


def asked(things: Things) -> dict[str, Any]:
    return {"projectId": things.project, "query": "gateway"}


def repair(things: Things) -> dict[str, Any]:
    return {"projectId": things.project, "dryRun": True}


VECTORS_ARE_OFF = 409
THE_FILE_ENDS_EARLY = 400

TABLE: dict[str, Row] = {
    "getHealth": Row(PUBLIC),
    "getReadiness": Row(PUBLIC),
    "getHookHealth": Row(PUBLIC),
    "getHookReadiness": Row(PUBLIC),
    "getHookVersion": Row(PUBLIC),
    "getInfo": Row(PUBLIC),
    "getMetrics": Row(SERVER),
    "createToken": Row(ANY, body=lambda _: {}),
    "whoami": Row(ANY),
    "listTeams": Row(READ),
    "createTeam": Row(SERVER, body=lambda _: {"name": "made"}),
    "getTeam": Row(READ, "id"),
    "updateTeam": Row(ADMIN, "id", body=lambda _: {"name": "changed"}),
    "deleteTeam": Row(ADMIN, "id"),
    "listMembers": Row(ADMIN, "id"),
    "createMember": Row(ADMIN, "id", body=lambda _: {"userId": str(uuid.uuid4()), "role": "viewer"}),
    "updateMember": Row(ADMIN, "id", body=lambda _: {"role": "member"}),
    "deleteMember": Row(ADMIN, "id"),
    "listKeys": Row(KEYS),
    "createKey": Row(KEYS, body=lambda _: {"scopes": [KEYS]}),
    "getKey": Row(KEYS, "id"),
    "updateKey": Row(KEYS, "id", body=lambda _: {"name": "changed"}),
    "revokeKey": Row(KEYS, "id"),
    "rotateKey": Row(KEYS, "id", body=lambda _: {}),
    "listProjects": Row(READ),
    "createProject": Row(WRITE, body=lambda _: {"name": "made"}),
    "getProject": Row(READ, "id"),
    "getProjectStats": Row(READ, "id"),
    "updateProject": Row(ADMIN, "id", body=lambda _: {"name": "changed"}),
    "deleteProject": Row(ADMIN, "id"),
    "purgeProjectMemory": Row(ADMIN, "id"),
    "exportProject": Row(ADMIN, "id"),
    "importProject": Row(ADMIN, "id", content=(b"", "application/x-ndjson"), success=THE_FILE_ENDS_EARLY),
    "getRetention": Row(ADMIN, "id"),
    "setRetention": Row(ADMIN, "id", body=lambda _: {"rules": [{"maxAgeDays": 90}]}),
    "startSession": Row(WRITE, "project", body=lambda t: {**of_project(t), "externalSessionId": str(uuid.uuid4())}),
    "listSessions": Row(READ, "project", query=of_project),
    "getSession": Row(READ, "id"),
    "endSession": Row(WRITE, "id", body=lambda _: {}),
    "erasePerson": Row(ADMIN, body=lambda _: {"actor": str(uuid.uuid4())}),
    "deleteSession": Row(ADMIN, "id"),
    "createEvent": Row(WRITE, "project", body=event),
    "createEvents": Row(WRITE, "project", body=lambda t: [event(t)]),
    "listEvents": Row(READ, "project", query=of_project),
    "getEvent": Row(READ, "id"),
    "createMemory": Row(WRITE, "project", body=memory),
    "createMemories": Row(WRITE, "project", body=lambda t: [memory(t)]),
    "listMemories": Row(READ, "project", query=of_project),
    "listMemoriesByFile": Row(READ, "project", query=lambda t: {**of_project(t), "path": "a.py"}),
    "getMemory": Row(READ, "id"),
    "updateMemory": Row(WRITE, "id", body=lambda _: {"title": str(uuid.uuid4())}),
    "deleteMemory": Row(WRITE, "id"),
    "deleteMemories": Row(ADMIN, "project", body=lambda t: {**of_project(t), "kinds": ["summary"]}),
    "listMemorySources": Row(READ, "id"),
    "createConversation": Row(WRITE, "project", body=conversation),
    "searchMemories": Row(READ, "project", body=asked),
    "getContext": Row(READ, "project", body=asked),
    "getTimeline": Row(READ, "project", query=lambda t: {**of_project(t), "anchor": "1"}),
    "listRelatedMemories": Row(READ, "id"),
    "listAudit": Row(AUDIT, "project", query=of_project),
    "getUsage": Row(AUDIT),
    "getVectorStatus": Row(READ, "project", query=of_project),
    "backfillVectors": Row(ADMIN, "project", body=repair, success=VECTORS_ARE_OFF),
    "rebuildVectors": Row(ADMIN, "project", body=repair, success=VECTORS_ARE_OFF),
    "verifyVectors": Row(ADMIN, "project", body=repair, success=VECTORS_ARE_OFF),
    "getOperation": Row(ADMIN, "id"),
}


@dataclass(frozen=True)
class Route:
    """A route of the contract with its row."""

    operation_id: str
    method: str
    path: str
    success: int
    row: Row = field(repr=False)

    def send(self, http: httpx.Client, things: Things, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Send the row's request about some things."""
        sent: dict[str, Any] = {"headers": dict(headers or {})}
        if self.row.content is not None:
            sent["content"] = self.row.content[0]
            sent["headers"]["Content-Type"] = self.row.content[1]
        elif self.row.body is not None:
            sent["json"] = self.row.body(things)
        if self.row.query is not None:
            sent["params"] = self.row.query(things)
        return http.request(self.method, self.path.format(**things.in_path), **sent)


def contracted() -> dict[str, tuple[str, str, int]]:
    """Return method, path and success of every operation of the committed contract."""
    document = json.loads((ROOT / openapi.PATH).read_text(encoding="utf-8"))
    return {
        operation["operationId"]: (
            method.upper(),
            path,
            max(int(code) for code in operation["responses"] if code < "3"),
        )
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


def routes() -> list[Route]:
    """Return every route of the contract that has a row."""
    found = contracted()
    return [
        Route(name, method, path, TABLE[name].success or success, TABLE[name])
        for name, (method, path, success) in found.items()
        if name in TABLE
    ]
