"""Examples in the OpenAPI document: one value per field name, assembled along the schema of each body."""

from collections.abc import Mapping
from typing import Any, Final

from app.version import VERSION

_BY_FIELD: Final[dict[str, Any]] = {
    "accessToken": "eyJhbGciOiJIUzI1NiIs…",
    "action": "memory.create",
    "after": "2026-11-01T00:00:00Z",
    "agentId": "agent-1",
    "agentType": "claude-code",
    "anchor": "01a22c63-b1fc-7813-98f9-1fade3cc7b3f",
    "apiKey": "cmem_6kYxT2pQ_…",
    "before": "2026-12-01T00:00:00Z",
    "concept": "timeouts",
    "concepts": ["timeouts", "payments"],
    "connectCommand": None,
    "content": "Raised the gateway timeout to three seconds; the p99 of /charge is 2.1 s.",
    "contentHash": "9598221e8f1bb2c289100174ecfcd69cc6a654f25ef21e0457ad0f4f20d55076",
    "contentSessionId": "3f0c9a34-run",
    "context": "[memory]\n- [2026-11-30] Raised the gateway timeout to three seconds",
    "createdAfter": "2026-11-01T00:00:00Z",
    "createdBefore": "2026-12-01T00:00:00Z",
    "createdBy": "01a22c63-b1fa-7b70-8b58-c88a5465db30",
    "cursor": "eyJwbGFjZSI6NTB9",
    "deduplicated": False,
    "degraded": False,
    "detail": "There is no such memory.",
    "durationMs": 4,
    "error": "NotFound",
    "eventType": "tool_use",
    "expiresIn": 3600,
    "explain": None,
    "externalSessionId": "3f0c9a34-run",
    "facts": ["The gateway's timeout is 3 s", "p99 of /charge is 2.1 s"],
    "fallbackReason": None,
    "files": ["src/payments/gateway.py"],
    "filesModified": ["src/payments/gateway.py"],
    "filesRead": ["src/payments/capture.py"],
    "id": "01a22c63-b1fc-7813-98f9-1fade3cc7b3f",
    "If-Match": '"3"',
    "instance": "/v1/memories/01a22c63-b1fc-7813-98f9-1fade3cc7b3f",
    "kind": "observation",
    "kinds": ["observation"],
    "label": "laptop",
    "legacyId": "42",
    "legacyObservationId": None,
    "legacyTable": "observations",
    "mcpUrl": None,
    "memorySessionId": None,
    "message": "There is no such memory.",
    "month": "2026-11",
    "name": "payments-api",
    "narrative": "Raised the gateway timeout to three seconds; the p99 of /charge is 2.1 s.",
    "nextCursor": None,
    "notice": None,
    "origin": "claude-mem:5d41402abc4b",
    "path": "src/payments/gateway.py",
    "pinned": False,
    "platformSource": "claude",
    "prefix": "cmem_6kYxT2pQ",
    "query": "why does checkout time out",
    "requestId": "01a22c63-b1fc-7813-98f9-1fade3cc7b40",
    "revokedAtEpoch": None,
    "role": "member",
    "rootPath": "/home/dev/payments-api",
    "rotatedFrom": None,
    "schemaVersion": "0002",
    "scopes": ["memories:read", "memories:write"],
    "serverSessionId": None,
    "slug": "payments-api",
    "snippet": "Raised the gateway **timeout** to three seconds",
    "sourceType": "hook",
    "state": "ready",
    "status": "ok",
    "strategy": "hybrid",
    "subtitle": None,
    "supersededBy": None,
    "targetType": "memory",
    "teamId": "01a22c63-b1fa-7b70-8b58-c88a5465db2f",
    "text": None,
    "title": "Checkout timed out behind the gateway",
    "tokenType": "Bearer",
    "type": "bugfix",
    "types": ["bugfix", "decision"],
    "uptime": 3600,
    "uri": None,
    "userId": "ada",
    "version": VERSION,
}
_BY_STRUCT: Final[dict[str, dict[str, Any]]] = {
    "Problem": {"type": "about:blank", "title": "Not Found", "status": 404, "issues": []},
    "IssueView": {"path": "body.limit", "message": "Expected `int`, got `str`"},
    "Info": {"name": "cmem-server", "runtime": "python 3.11.7", "authMode": "api-key"},
    "Ready": {"database": "ok", "migrations": "ok", "vectors": "ready"},
    "StatsView": {
        "memories": 214,
        "sessions": 12,
        "events": 1840,
        "byKind": {"observation": 180, "prompt": 34},
        "byType": {"bugfix": 41, "decision": 12},
        "byDay": {"2026-11-30": 9},
        "storageBytes": 1_482_752,
    },
    "PurgeCounts": {"memories": 214},
    "OperationView": {
        "kind": "vectors.verify",
        "status": "done",
        "done": 214,
        "total": 214,
        "result": {"missing": 3, "repaired": 3},
        "error": None,
    },
    "ConversationCreate": {"tags": ["billing"]},
    "ConversationMessage": {"role": "user", "content": "Please refund order 4417 ($49.90)."},
    "VectorStatus": {"model": "minilm", "backoffSeconds": 0, "lastError": None, "probe": None},
    "VectorProject": {
        "collection": "cmem_01a22c63",
        "memories": 214,
        "indexed": 213,
        "pending": 1,
        "failed": 0,
        "skipped": 0,
        "oldestPendingSeconds": 2,
    },
    "VectorProbe": {"stage": "done", "error": None, "milliseconds": {"connect": 3, "list": 2, "embed": 6, "query": 3}},
    "TeamCreate": {"name": "Payments", "slug": "payments"},
    "TeamPatch": {"name": "Payments", "slug": "payments"},
    "TeamView": {"name": "Payments", "slug": "payments"},
    "KeyCreate": {"name": "build server", "userId": "ada"},
    "KeyView": {"name": "build server"},
    "UsageKinds": {"read": 5120, "search": 940, "write": 1311, "admin": 4},
    "UsageReply": {"total": 7375},
    "SourceView": {"sourceType": "observation"},
}
_COMPLETE: Final[dict[str, dict[str, Any]]] = {
    "KeyPatch": {"name": "build server", "scopes": ["memories:read"]},
    "KeyRotate": {"overlapSeconds": 86_400},
    "MemberPatch": {"role": "admin"},
    "MemoryPatch": {"facts": ["The gateway's timeout is 5 s"], "pinned": True},
    "ContextRequest": {"projectId": _BY_FIELD["id"], "query": _BY_FIELD["query"], "maxChars": 1500},
    "VectorRepair": {"projectId": _BY_FIELD["id"], "dryRun": True},
    "SearchRequest": {"projectId": _BY_FIELD["id"], "query": _BY_FIELD["query"], "kinds": ["observation"], "limit": 5},
}
_EPOCH_MS: Final = 1_796_041_060_860
_OMITTED_IN_REQUESTS: Final = frozenset({"content", "cursor", "explain", "createdAfter", "createdBefore"})


def example(schema: Mapping[str, Any], components: Mapping[str, Any], name: str = "") -> Any:
    """Return an example value for a JSON schema; `name` is the field that it is for."""
    if "$ref" in schema:
        return example(components[schema["$ref"].rsplit("/", 1)[1]], components, name)
    if name in _BY_FIELD and _fits(_BY_FIELD[name], schema):
        return _BY_FIELD[name]
    for choices in ("anyOf", "oneOf"):
        if choices in schema:
            return example(schema[choices][0], components, name)
    if "enum" in schema:
        return schema.get("default", schema["enum"][0])
    if schema.get("type") == "object" and "properties" in schema:
        return _object(schema, components)
    if schema.get("type") == "array":
        return [example(schema.get("items", {}), components, name.removesuffix("s"))]
    return _generic_value(schema, name)


def _object(schema: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    title = schema.get("title", "")
    if title in _COMPLETE:
        return _COMPLETE[title]
    shown = {key: value for key, value in schema["properties"].items() if _is_shown(key, schema)}
    return {key: example(value, components, key) for key, value in shown.items()} | _BY_STRUCT.get(title, {})


def _is_shown(key: str, schema: Mapping[str, Any]) -> bool:
    """Say whether an example shows a field: it is required, or its value is instructive."""
    return key in schema.get("required", ()) or bool(_BY_FIELD.get(key) and key not in _OMITTED_IN_REQUESTS)


def _generic_value(schema: Mapping[str, Any], name: str) -> Any:
    if "default" in schema:
        return schema["default"]
    kind = schema.get("type")
    if kind == "integer":
        return _EPOCH_MS if name.endswith(("Epoch", "After", "Before")) else max(1, schema.get("minimum", 1))
    if kind == "string" and name.endswith("Id"):
        return _BY_FIELD["id"]
    return {"string": name or "text", "boolean": True, "number": 0.87, "object": {}}.get(kind or "")


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    alternatives = schema.get("anyOf") or schema.get("oneOf") or [schema]
    return any(_is_one_of(value, each) for each in alternatives)


def _is_one_of(value: Any, schema: Mapping[str, Any]) -> bool:
    kinds = {"str": "string", "int": "integer", "bool": "boolean", "list": "array", "dict": "object"}
    if "enum" in schema:
        return value in schema["enum"]
    return kinds.get(type(value).__name__, "null") == schema.get("type")
