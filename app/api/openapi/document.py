"""The OpenAPI document: what Litestar derives from the handlers, completed with errors, headers and security.

Litestar knows the routes and msgspec the bodies; the errors of a route are derived from what it takes.
"""

import base64
import functools
import hashlib
import re
import threading
from collections.abc import Iterator
from importlib import resources
from typing import Any, Final

import msgspec
from litestar import Litestar, MediaType, Response, Router, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.routes import HTTPRoute
from litestar.static_files import create_static_files_router

from app.api.http.request import ApiRequest
from app.api.http.schemas import LenientWire, Wire
from app.api.openapi import examples, parts
from app.version import NAME, VERSION

_REF: Final = "#/components/schemas/{name}"
_SNAKE: Final = re.compile(r"_([a-z])")
NDJSON: Final = "application/x-ndjson"
_TEXT: Final = {"schema": {"type": "string"}, "example": "cmem_memories 214.0"}
_LINES: Final = {
    "schema": {"type": "string", "description": "One JSON object per line."},
    "example": '{"record":"header"}',
}
_SENTENCE_END: Final = re.compile(r"[.:;]\s")

CONFIG: Final = OpenAPIConfig(
    title=NAME,
    version=VERSION,
    description=parts.DESCRIPTION,
    use_handler_docstrings=True,
    render_plugins=(),
    path="/openapi",
)


def document(app: Litestar) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of an app. The schemas come from msgspec, which also decodes the bodies."""
    schema = app.openapi_schema.to_schema()
    components = _components()
    paths = {}
    for route in app.routes:
        if isinstance(route, HTTPRoute) and route.path_format in schema["paths"]:
            operations = schema["paths"][route.path_format]
            for method, operation in operations.items():
                handler, _ = route.route_handler_map[method.upper()]
                operations[method] = _complete_operation(operation, handler, components)
            paths[_to_camel(route.path_format)] = operations
    used = set(_referenced_components([*paths.values(), *parts.ERRORS.values()], components))
    return {
        "openapi": "3.1.0",
        "info": schema["info"],
        "servers": [{"url": "/"}],
        "tags": parts.tags({tag for path in paths.values() for each in path.values() for tag in each["tags"]}),
        "paths": paths,
        "components": {
            "schemas": {name: components[name] for name in sorted(used)},
            "responses": parts.ERRORS,
            "headers": parts.HEADERS,
            "securitySchemes": parts.SECURITY_SCHEMES,
        },
    }


def _components() -> dict[str, Any]:
    _, components = msgspec.json.schema_components(_all_subclasses(Wire, LenientWire), ref_template=_REF)
    for component in components.values():
        _clarify(component)
    for component in components.values():
        component["examples"] = [examples.example(component, components)]
    return components


def _all_subclasses(*bases: Any) -> list[type]:
    direct = [struct for base in bases for struct in base.__subclasses__()]
    return [*direct, *_all_subclasses(*direct)] if direct else []


def _clarify(schema: Any) -> None:
    """State what client generators would guess wrong: types of enums, open objects, fields with defaults."""
    if isinstance(schema, list):
        for each in schema:
            _clarify(each)
    if not isinstance(schema, dict):
        return
    if all(isinstance(value, str) for value in schema.get("enum", (None,))):
        schema["type"] = "string"
    if schema.get("type") == "object":
        schema.setdefault("additionalProperties", True)
    for name, field in schema.get("properties", {}).items():
        schema["properties"][name] = _without_default(field)
    for value in list(schema.values()):
        _clarify(value)


def _without_default(field: dict[str, Any]) -> dict[str, Any]:
    """Move a default to the description: given the keyword, TypeScript generators make the field required."""
    if "default" not in field:
        return field
    rest = {key: value for key, value in field.items() if key != "default"}
    if field["default"] in (None, [], {}):
        return rest
    described = " ".join(filter(None, (rest.get("description"), f"Default: `{_json(field['default'])}`.")))
    return {**rest, "description": described}


def _json(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _referenced_components(node: Any, components: dict[str, Any], seen: set[str] | None = None) -> Iterator[str]:
    """Yield the components that a node refers to, directly or through others."""
    seen = set() if seen is None else seen
    if isinstance(node, dict):
        name = str(node.get("$ref", "")).removeprefix(_REF.format(name=""))
        if name in components and name not in seen:
            seen.add(name)
            yield name
            yield from _referenced_components(components[name], components, seen)
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from _referenced_components(each, components, seen)


def _complete_operation(
    operation: dict[str, Any], handler: HTTPRouteHandler, components: dict[str, Any]
) -> dict[str, Any]:
    """Return an operation in reading order, with everything that a client needs to know."""
    summary, opt = _SENTENCE_END.split(operation["description"] + " ")[0], handler.opt
    complete = {
        "operationId": operation["operationId"],
        "tags": operation["tags"],
        "summary": summary.rstrip("."),
        "description": operation["description"],
        "parameters": [_complete_parameter(each) for each in operation.get("parameters", ())],
        "requestBody": _request_body(operation, handler, components),
        "responses": _responses(operation, handler),
        "security": [] if opt.get("public") else parts.security(opt.get("scope")),
    }
    if opt.get("idempotent"):
        complete["parameters"].append(parts.IDEMPOTENCY_KEY)
    if scope := opt.get("scope"):
        alternative = f", or `{other}` for the whole server" if (other := opt.get("or_scope")) else ""
        complete["description"] += f" Requires `{scope}`{alternative}."
    return {key: value for key, value in complete.items() if value or key == "security"}


def _request_body(
    operation: dict[str, Any], handler: HTTPRouteHandler, components: dict[str, Any]
) -> dict[str, Any] | None:
    if consumes := handler.opt.get("consumes"):
        return {"required": True, "content": {consumes: _LINES}}
    body = handler.parsed_data_field
    if body is None or "requestBody" not in operation:
        return None
    media_type, described = next(iter(operation["requestBody"]["content"].items()))
    if "media" in handler.opt:
        return {"required": True, "content": {media_type: described}}
    (schema,), _ = msgspec.json.schema_components([body.raw], ref_template=_REF)
    _clarify(schema)
    content = {"schema": schema, "example": examples.example(schema, components)}
    return {"required": not body.is_optional, "content": {"application/json": content}}


def _complete_parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter without null, which no query can express, and with integer limits for integers."""
    schema = dict(parameter["schema"])
    schema.pop("description", None)
    alternatives = [each for each in schema.pop("oneOf", ()) if each.get("type") != "null"]
    schema.update(alternatives[0] if alternatives else {})
    whole = {key: int(schema[key]) for key in ("minimum", "maximum") if key in schema}
    schema.update(whole if schema.get("type") == "integer" else {})
    name = _to_camel(parameter["name"])
    return {
        "name": name,
        "in": parameter["in"],
        "required": parameter.get("required", False),
        "description": parameter.get("description") or parts.FILTERS.get(name, ""),
        "schema": schema,
        "example": examples.example(schema, {}, name),
    }


def _responses(operation: dict[str, Any], handler: HTTPRouteHandler) -> dict[str, Any]:
    opt, success = handler.opt, dict(operation["responses"][str(handler.status_code)])
    success["description"] = {201: "Created.", 202: "Accepted."}.get(handler.status_code, "Success.")
    success["headers"] = parts.success_headers(opt)
    if produces := opt.get("produces"):
        success["content"] = {produces: _LINES if produces == NDJSON else _TEXT}
    responses = {handler.status_code: success}
    if opt.get("also_200"):
        responses[200] = {**success, "description": "It already existed."}
    for status in parts.possible_errors(handler):
        responses[status] = parts.error_reference(status)
    if opt.get("also_503"):  # the same body, which says what is not ready
        responses[503] = {**success, "description": "Not ready, or too busy.", "content": dict(success["content"])}
        responses[503]["content"].update(parts.ERRORS["Unavailable"]["content"])
    return {str(status): responses[status] for status in sorted(responses)}


def _to_camel(path: str) -> str:
    return _SNAKE.sub(lambda match: match.group(1).upper(), path)


_START: Final = 'SwaggerUIBundle({url: "/openapi.json", dom_id: "#ui", deepLinking: true, validatorUrl: null})'
_PAGE: Final = f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>cmem-server</title>
<link rel="icon" href="/docs/assets/favicon-32x32.png">
<link rel="stylesheet" href="/docs/assets/swagger-ui.css">
</head>
<body>
<div id="ui"></div>
<script src="/docs/assets/swagger-ui-bundle.js"></script>
<script>{_START}</script>
</body>
</html>
"""
_START_HASH: Final = base64.b64encode(hashlib.sha256(_START.encode()).digest()).decode()
_ONLY_THIS_HOST: Final = (
    f"default-src 'none'; script-src 'self' 'sha256-{_START_HASH}'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'"
)


_generating: Final = threading.Lock()


@get("/openapi.json", operation_id="getOpenapi", public=True, include_in_schema=False, sync_to_thread=True)
def get_openapi(request: ApiRequest) -> Response[bytes]:
    """Return the OpenAPI document. It takes 0.2 s to generate, so that is done once, when it is first requested."""
    with _generating:
        return Response(_encoded(request.app), media_type=MediaType.JSON)


@functools.lru_cache(maxsize=1)
def _encoded(app: Litestar) -> bytes:
    return msgspec.json.encode(document(app))


@get("/docs", operation_id="getDocs", public=True, include_in_schema=False)
async def get_docs() -> Response[str]:
    """Return Swagger UI, with a Content-Security-Policy that forbids requests to any other host."""
    return Response(_PAGE, media_type=MediaType.HTML, headers={"Content-Security-Policy": _ONLY_THIS_HOST})


router = Router(
    "/",
    route_handlers=[
        get_openapi,
        get_docs,
        create_static_files_router(
            path="/docs/assets",
            directories=[resources.files("swagger_ui") / "static"],  # type: ignore[list-item]
            opt={"public": True, "any_query": True},
            include_in_schema=False,
        ),
    ],
)
