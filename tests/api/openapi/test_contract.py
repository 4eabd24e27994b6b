"""The committed OpenAPI document: it agrees with the code, and is usable for generators and people."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from app.cli import openapi
from tests import ROOT

COMMITTED = ROOT / openapi.PATH
METHODS = {"get", "post", "put", "patch", "delete"}
OPERATION_IDS = """
getHealth getReadiness getHookHealth getHookReadiness getHookVersion getInfo
listProjects createProject getProject updateProject deleteProject purgeProjectMemory getProjectStats
exportProject importProject
getMetrics getRetention setRetention deleteMemories deleteSession erasePerson
startSession listSessions getSession endSession
createEvent createEvents listEvents getEvent
createMemory createMemories listMemories listMemoriesByFile getMemory updateMemory deleteMemory listMemorySources
listRelatedMemories createConversation searchMemories getContext getTimeline
createToken whoami
listTeams createTeam getTeam updateTeam deleteTeam
listMembers createMember updateMember deleteMember
listKeys createKey getKey updateKey revokeKey rotateKey
listAudit getUsage
getVectorStatus backfillVectors rebuildVectors verifyVectors getOperation
"""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return json.loads(COMMITTED.read_text(encoding="utf-8"))


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS & item.keys():
            yield method, path, item[method]


def is_public(operation: dict[str, Any]) -> bool:
    return operation["security"] == []


def resolved(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        _, section, name = node["$ref"].removeprefix("#/").split("/")
        node = document["components"][section][name]
    return node


def contents(document: dict[str, Any], operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every body of an operation, sent or returned."""
    for node in (operation.get("requestBody", {}), *operation["responses"].values()):
        yield from resolved(document, node).get("content", {}).values()


def faults(document: dict[str, Any], schema: dict[str, Any], value: Any) -> list[str]:
    validator = Draft202012Validator({**schema, "components": document["components"]})
    return [fault.message for fault in validator.iter_errors(value)]


def test_the_committed_document_is_what_the_code_generates():
    """A change to a route is committed with the changed document; `make openapi` writes it."""
    assert COMMITTED.read_text(encoding="utf-8") == openapi.generated()


def test_the_document_is_valid_openapi(document):
    """Tools that read OpenAPI 3.1 can read it."""
    assert document["openapi"] == "3.1.0"
    validate(document)


def test_operation_ids_do_not_change(document):
    """Generated clients name their functions after them, so none changes and none is used twice."""
    operation_ids = [operation["operationId"] for _, _, operation in operations(document)]

    assert sorted(operation_ids) == sorted(OPERATION_IDS.split())


def test_every_route_is_described(document):
    """Each operation has a summary, a description and a described tag; each parameter and response is described too."""
    described_tags = {tag["name"] for tag in document["tags"] if tag["description"] != tag["name"]}
    undescribed = []
    for _, _, operation in operations(document):
        parts = [operation, *operation.get("parameters", ())]
        parts += [resolved(document, response) for response in operation["responses"].values()]
        if not all(part.get("description") for part in parts) or not described_tags.issuperset(operation["tags"]):
            undescribed.append(operation["operationId"])

    assert undescribed == []


def test_every_body_has_an_example_that_fits_its_schema(document):
    """Examples can be sent, and show what comes back."""
    wrong = {}
    for _, _, operation in operations(document):
        for content in contents(document, operation):
            schema = resolved(document, content["schema"])
            examples = [content["example"]] if "example" in content else schema.get("examples", [])
            errors = [fault for value in examples for fault in faults(document, schema, value)]
            if errors or not examples:
                wrong[operation["operationId"]] = errors or "no example"

    assert wrong == {}


def test_every_parameter_and_header_has_an_example_that_fits_its_schema(document):
    """Examples can be sent."""
    every = [parameter for _, _, operation in operations(document) for parameter in operation.get("parameters", ())]
    every += document["components"]["headers"].values()

    assert [each for each in every if "example" not in each or faults(document, each["schema"], each["example"])] == []


def test_no_query_parameter_can_be_null(document):
    """A query has no null: a filter is given or omitted."""
    queries = [p for _, _, operation in operations(document) for p in operation.get("parameters", ())]

    assert [p["name"] for p in queries if "null" in json.dumps(p["schema"])] == []


def test_every_route_but_the_public_ones_names_the_credential_and_the_scope(document):
    """A client knows what it needs before it sends a request; public routes are recognisable."""
    public = {path for _, path, operation in operations(document) if is_public(operation)}
    schemes = [operation["security"] for _, _, operation in operations(document) if not is_public(operation)]

    assert public == {"/healthz", "/readyz", "/api/health", "/api/readiness", "/api/version", "/v1/info"}
    assert all([set(each) for each in ways] == [{"bearer"}, {"apiKey"}] for ways in schemes)


def test_every_error_is_a_problem_with_its_headers(document):
    """RFC 9457 bodies everywhere; 401 says how to authenticate, 429 and 503 when to retry."""
    errors = document["components"]["responses"]
    schemas = {name: list(error["content"]) for name, error in errors.items()}

    assert set(map(tuple, schemas.values())) == {("application/problem+json",)}
    assert "WWW-Authenticate" in errors["Unauthorized"]["headers"]
    assert all("Retry-After" in errors[name]["headers"] for name in ("RateLimited", "Unavailable"))
    assert all("X-Request-Id" in error["headers"] for error in errors.values())


def test_every_route_with_a_credential_lists_its_errors(document):
    """Clients can distinguish a refused key, a missing scope, a limit and a server error."""
    common = {"400", "401", "402", "403", "429", "500", "503"}
    lacking = {
        operation["operationId"]: common - operation["responses"].keys()
        for _, _, operation in operations(document)
        if not is_public(operation) and not common <= operation["responses"].keys()
    }

    assert lacking == {}


def test_bodies_are_closed_except_those_that_hooks_send(document):
    """A misspelt key is refused, and the schema says so; the routes for hooks ignore unknown keys."""
    schemas = document["components"]["schemas"]
    is_open = {name for name, schema in schemas.items() if schema["additionalProperties"] is not False}

    assert is_open == {"EventCreate", "SessionStart", "SessionEnd"}


def test_replies_have_every_field_and_name_those_that_can_be_null(document):
    """A generated client sees every field of a reply, and null only where it can occur."""
    memory = document["components"]["schemas"]["MemoryView"]
    nullable = {name for name, field in memory["properties"].items() if {"type": "null"} in field.get("anyOf", ())}

    assert set(memory["required"]) == set(memory["properties"])
    assert nullable == {
        *("title", "subtitle", "text", "narrative", "content"),
        *("serverSessionId", "supersededBy", "legacyObservationId"),
    }


def test_a_request_field_with_a_default_stays_optional_for_generators(document):
    """The keyword `default` makes TypeScript generators require the field, so the description states it instead."""
    create = document["components"]["schemas"]["MemoryCreate"]

    assert create["required"] == ["projectId"]
    assert '"default"' not in json.dumps(document["components"]["schemas"])
    assert "Default: `manual`." in create["properties"]["kind"]["description"]


def test_lengths_are_in_the_document(document):
    """A client can check what would be refused for its length."""
    properties = document["components"]["schemas"]["MemoryCreate"]["properties"]

    assert {"type": "string", "maxLength": 1_000_000} in properties["narrative"]["anyOf"]
    assert document["paths"]["/v1/memories/batch"]["post"]["requestBody"]["content"]["application/json"]["schema"] == {
        "type": "array",
        "items": {"$ref": "#/components/schemas/MemoryCreate"},
        "minItems": 1,
        "maxItems": 500,
    }


def test_every_component_is_used(document):
    """Every schema is the body of a route or a part of one."""
    text = json.dumps(document)

    assert [name for name in document["components"]["schemas"] if f'/schemas/{name}"' not in text] == []
