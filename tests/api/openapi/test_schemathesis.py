"""The OpenAPI document against the server: valid and invalid generated requests, deterministic and limited in number.

Whatever is sent: no 5xx, no undocumented status, header or body, and nothing forbidden is accepted.
"""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig

from app.cli import openapi
from tests import ROOT
from tests.conftest import Server, Tenant

SETTINGS = {
    "generation": {"deterministic": True, "max-examples": 12, "database": "none"},
    "checks": {
        "negative_data_rejection": {"expected-statuses": [400, 401, 403, 404, 405, 409, 412, 413, 415]},
        # a schema cannot express some rules: cursors are opaque, one text must not be blank, 10.0 is not an integer
        "positive_data_acceptance": {"enabled": False},
        # Litestar answers OPTIONS with the methods of the first handler of a path
        "allow_header_conformance": {"enabled": False},
    },
}
CONTRACT = schemathesis.openapi.from_path(ROOT / openapi.PATH, config=SchemathesisConfig.from_dict(SETTINGS))


@schemathesis.serializer("application/x-ndjson")
def as_lines(ctx: schemathesis.SerializationContext, value: object) -> bytes:
    """Serialise the generated body of an import, which is text and not JSON."""
    return str(value).encode(errors="replace")


@pytest.fixture
def known_ids(team: Tenant) -> dict[str, str]:
    """Ids of existing resources, under the names of the parameters that take them."""
    project = {"projectId": team.project_id}
    session = team.http.post("/v1/sessions/start", json={**project, "contentSessionId": "run"}).json()["session"]
    key = team.http.post("/v1/keys", json={"name": "another"}).json()
    member = team.http.post(f"/v1/teams/{team.team_id}/members", json={"userId": "ada", "role": "viewer"}).json()
    event = {**project, "sourceType": "hook", "eventType": "tool_use", "occurredAtEpoch": 1}
    return {
        **project,
        "teamId": team.team_id,
        "keyId": key["id"],
        "userId": member["member"]["userId"],
        "memoryId": team.post_memory(content="The gateway timeout is three seconds.").json()["memory"]["id"],
        "sessionId": session["id"],
        "serverSessionId": session["id"],
        "eventId": team.http.post("/v1/events", json=event).json()["event"]["id"],
    }


def use_known_ids(case: schemathesis.Case, known_ids: dict[str, str]) -> None:
    """Let a well-formed request name existing resources; otherwise hardly any would pass the first lookup."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    for part in (case.path_parameters, case.query, case.body):
        if isinstance(part, dict):
            part.update({name: known_ids[name] for name in part.keys() & known_ids.keys()})
            part.pop("cursor", None)


@CONTRACT.parametrize()
@settings(suppress_health_check=list(HealthCheck), deadline=None)
def test_a_route_behaves_as_documented(case, server: Server, team: Tenant, known_ids: dict[str, str]):
    """Each route handles generated requests, well-formed and malformed."""
    use_known_ids(case, known_ids)
    case.call_and_validate(base_url=server.url, headers={"Authorization": f"Bearer {team.api_key}"})
