"""Examples of the contract: one value per field name, put together by the shape of each body."""

from collections.abc import Mapping
from typing import Any, Final

_VALUES: Final[dict[str, Any]] = {
    "accessToken": "eyJhbGciOiJIUzI1NiIs…",
    "agentId": "agent-1",
    "agentType": "claude-code",
    "content": "Raised the gateway timeout to three seconds; the p99 of /charge is 2.1 s.",
    "concepts": ["timeouts", "payments"],
    "contentHash": "9598221e8f1bb2c289100174ecfcd69cc6a654f25ef21e0457ad0f4f20d55076",
    "contentSessionId": "3f0c9a34-run",
    "cursor": None,
    "eventType": "tool_use",
    "externalSessionId": "3f0c9a34-run",
    "facts": ["The gateway's timeout is 3 s", "p99 of /charge is 2.1 s"],
    "filesModified": ["src/payments/gateway.py"],
    "filesRead": ["src/payments/capture.py"],
    "id": "01a22c63-b1fc-7813-98f9-1fade3cc7b3f",
    "instance": "/v1/memories",
    "kind": "observation",
    "legacyObservationId": None,
    "legacyTable": "observations",
    "legacyId": "42",
    "memorySessionId": None,
    "message": "There is no such memory.",
    "detail": "There is no such memory.",
    "error": "NotFound",
    "name": "payments-api",
    "narrative": "Raised the gateway timeout to three seconds; the p99 of /charge is 2.1 s.",
    "nextCursor": None,
    "origin": "claude-mem:5d41402abc4b",
    "path": "body.limit",
    "platformSource": "claude",
    "projectId": "01a22c63-b1fc-7813-98f9-1fade3cc7b3f",
    "query": "why does checkout time out",
    "requestId": "01a22c63-b1fc-7813-98f9-1fade3cc7b40",
    "rootPath": "/home/dev/payments-api",
    "schemaVersion": "0002",
    "scopes": ["memories:read", "memories:write"],
    "serverSessionId": None,
    "slug": "payments-api",
    "sourceType": "hook",
    "status": "ok",
    "subtitle": None,
    "supersededBy": None,
    "teamId": "01a22c63-b1fa-7b70-8b58-c88a5465db2f",
    "text": None,
    "title": "Checkout timed out behind the gateway",
    "type": "bugfix",
    "version": "0.1.0",
}


def example(schema: Mapping[str, Any], components: Mapping[str, Any], name: str = "") -> Any:
    """Return a value of a JSON schema; `name` is the field it stands under."""
    if "$ref" in schema:
        return example(components[schema["$ref"].rsplit("/", 1)[1]], components, name)
    if name in _VALUES and _fits(_VALUES[name], schema):
        return _VALUES[name]
    for choices in ("anyOf", "oneOf"):
        if choices in schema:
            return example(schema[choices][0], components, name)
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object" and "properties" in schema:
        wanted = schema["properties"].items()
        return {key: example(value, components, key) for key, value in wanted if _is_shown(key, schema)}
    if schema.get("type") == "array":
        return [example(schema.get("items", {}), components, name.removesuffix("s"))]
    return _plain(schema, name)


def _is_shown(key: str, schema: Mapping[str, Any]) -> bool:
    """Leave out of a request what has a default and says nothing in an example."""
    return key in schema.get("required", ()) or _VALUES.get(key) is not None


def _plain(schema: Mapping[str, Any], name: str) -> Any:
    kind = schema.get("type")
    if kind == "integer":
        return 1796041060860 if name.endswith("Epoch") else max(1, schema.get("minimum", 1))
    return {"string": name or "text", "boolean": True, "number": 0.87, "object": {}}.get(kind or "")


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    kinds = {"str": "string", "int": "integer", "list": "array", "dict": "object", "NoneType": "null"}
    if "enum" in schema:
        return value in schema["enum"]
    alternatives = schema.get("anyOf") or schema.get("oneOf") or [schema]
    return any(kinds[type(value).__name__] == each.get("type") for each in alternatives)
