"""Every route in one table: the scope it requires, and how it names resources. For the matrix and isolation tests.

A new route needs a row here: without one, tests/api/test_route_matrix.py fails.
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
class ResourceIds:
    """Ids of one resource of each kind, all in one project of one team."""

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


def unknown_ids() -> ResourceIds:
    """Return ids that nothing has."""
    return ResourceIds(*[str(uuid.uuid4()) for _ in ResourceIds.__dataclass_fields__])


Body = Callable[[ResourceIds], Any]


@dataclass(frozen=True)
class Row:
    """A route: the scope it requires, how it names resources, and a request that succeeds for a caller with the scope.

    `names`: "id" in the path or as a reference, which is 404 for another team; "project" as an argument, which is 403
    for another team; None when every caller gets its own data. `success` is the status, unless it is the documented
    one.
    """

    scope: str
    names: Literal["id", "project"] | None = None
    body: Body | None = None
    query: Body | None = None
    content: tuple[bytes, str] | None = None
    success: int | None = None


def memory(ids: ResourceIds) -> dict[str, Any]:
    return {"projectId": ids.project, "content": f"a memory of {uuid.uuid4()}"}


def event(ids: ResourceIds) -> dict[str, Any]:
    return {"projectId": ids.project, "sourceType": "hook", "eventType": str(uuid.uuid4()), "occurredAtEpoch": 1}


def conversation(ids: ResourceIds) -> dict[str, Any]:
    message = {"role": "user", "content": f"What is {uuid.uuid4()}?"}
    return {"projectId": ids.project, "sessionId": ids.session, "messages": [message]}


def of_project(ids: ResourceIds) -> dict[str, Any]:
    return {"projectId": ids.project}


def search_query(ids: ResourceIds) -> dict[str, Any]:
    return {"projectId": ids.project, "query": "gateway"}


def repair(ids: ResourceIds) -> dict[str, Any]:
    return {"projectId": ids.project, "dryRun": True}


VECTORS_ARE_OFF = 409
IMPORT_IS_EMPTY = 400

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
    "importProject": Row(ADMIN, "id", content=(b"", "application/x-ndjson"), success=IMPORT_IS_EMPTY),
    "getRetention": Row(ADMIN, "id"),
    "setRetention": Row(ADMIN, "id", body=lambda _: {"rules": [{"maxAgeDays": 90}]}),
    "startSession": Row(WRITE, "project", body=lambda ids: {**of_project(ids), "externalSessionId": str(uuid.uuid4())}),
    "listSessions": Row(READ, "project", query=of_project),
    "getSession": Row(READ, "id"),
    "endSession": Row(WRITE, "id", body=lambda _: {}),
    "erasePerson": Row(ADMIN, body=lambda _: {"actor": str(uuid.uuid4())}),
    "deleteSession": Row(ADMIN, "id"),
    "createEvent": Row(WRITE, "project", body=event),
    "createEvents": Row(WRITE, "project", body=lambda ids: [event(ids)]),
    "listEvents": Row(READ, "project", query=of_project),
    "getEvent": Row(READ, "id"),
    "createMemory": Row(WRITE, "project", body=memory),
    "createMemories": Row(WRITE, "project", body=lambda ids: [memory(ids)]),
    "listMemories": Row(READ, "project", query=of_project),
    "listMemoriesByFile": Row(READ, "project", query=lambda ids: {**of_project(ids), "path": "a.py"}),
    "getMemory": Row(READ, "id"),
    "updateMemory": Row(WRITE, "id", body=lambda _: {"title": str(uuid.uuid4())}),
    "deleteMemory": Row(WRITE, "id"),
    "deleteMemories": Row(ADMIN, "project", body=lambda ids: {**of_project(ids), "kinds": ["summary"]}),
    "listMemorySources": Row(READ, "id"),
    "createConversation": Row(WRITE, "project", body=conversation),
    "searchMemories": Row(READ, "project", body=search_query),
    "getContext": Row(READ, "project", body=search_query),
    "getTimeline": Row(READ, "project", query=lambda ids: {**of_project(ids), "anchor": "1"}),
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
    """An operation of the OpenAPI document, with its row."""

    operation_id: str
    method: str
    path: str
    success: int
    row: Row = field(repr=False)

    def send(self, http: httpx.Client, ids: ResourceIds, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Send the request of the row, about these resources."""
        sent: dict[str, Any] = {"headers": dict(headers or {})}
        if self.row.content is not None:
            sent["content"] = self.row.content[0]
            sent["headers"]["Content-Type"] = self.row.content[1]
        elif self.row.body is not None:
            sent["json"] = self.row.body(ids)
        if self.row.query is not None:
            sent["params"] = self.row.query(ids)
        return http.request(self.method, self.path.format(**ids.in_path), **sent)


def operations() -> dict[str, tuple[str, str, int]]:
    """Return method, path and success status of every operation in the committed OpenAPI document."""
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
    """Return every operation that has a row in the table."""
    documented = operations()
    return [
        Route(name, method, path, TABLE[name].success or success, TABLE[name])
        for name, (method, path, success) in documented.items()
        if name in TABLE
    ]
