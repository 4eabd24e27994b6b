"""The contract: what Litestar derives from the handlers, completed with errors, headers and security.

Litestar knows the bodies; which errors a route can answer with follows from what it takes: a scope, a body, an id.
"""

import re
from importlib import resources
from typing import Any, Final

import msgspec
from litestar import Litestar, MediaType, Response, Router, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.routes import HTTPRoute
from litestar.static_files import create_static_files_router

from app.api import openapi_examples
from app.api.error_responses import PROBLEM_JSON
from app.api.health import NAME, VERSION
from app.api.request import ApiRequest
from app.api.wire import LenientWire, Wire

_DESCRIPTION: Final = """\
A team memory server for AI coding agents. Send an API key as `Authorization: Bearer cmem_…` or `X-Api-Key: cmem_…`.

Times are integer epoch milliseconds, UTC. Ids are opaque. Unknown keys are refused, in bodies and in queries.
Failures are RFC 9457 problem details with a stable code in `error`."""

CONFIG: Final = OpenAPIConfig(
    title=NAME,
    version=VERSION,
    description=_DESCRIPTION,
    use_handler_docstrings=True,
    render_plugins=(),
    path="/openapi",
    components=Components(
        security_schemes={
            "bearer": SecurityScheme(
                type="http", scheme="bearer", description="An API key (`cmem_…`) or an access token."
            ),
            "apiKey": SecurityScheme(type="apiKey", name="X-Api-Key", security_scheme_in="header"),
        }
    ),
)

_ERRORS: Final = {
    400: "The request is not of the documented form; `issues` names the fields.",
    401: "No, or no usable, credential.",
    402: "The monthly quota is used up.",
    403: "The credential does not allow this.",
    404: "There is no such thing for this caller.",
    409: "A unique value is taken, the state does not allow it, or the Idempotency-Key was used for something else.",
    412: "`If-Match` lost: it has changed since.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "Too many requests.",
    503: "The database cannot answer at the moment.",
}
_REF: Final = "#/components/schemas/{name}"
_IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Makes a repeat safe: kept 24 hours for this key, and answered with what the first request made.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    "example": "5f1c2a9e",
}
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>cmem-server</title>
<link rel="stylesheet" href="/docs/assets/swagger-ui.css">
</head>
<body>
<div id="ui"></div>
<script src="/docs/assets/swagger-ui-bundle.js"></script>
<script>SwaggerUIBundle({url: "/openapi.json", dom_id: "#ui", deepLinking: true})</script>
</body>
</html>
"""


def document(app: Litestar) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of an app. Bodies are described by msgspec, which also decodes them."""
    schema = app.openapi_schema.to_schema()
    components = _components()
    schema["components"]["schemas"] = components
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for method, (handler, _) in route.route_handler_map.items():
                operation = schema["paths"].get(route.path_format, {}).get(method.lower())
                if operation is not None:
                    _complete(operation, handler, components)
    return schema


def _components() -> dict[str, Any]:
    _, components = msgspec.json.schema_components(_structs(Wire, LenientWire), ref_template=_REF)
    for component in components.values():
        component["examples"] = [openapi_examples.example(component, components)]
    return components


def _structs(*bases: Any) -> list[type]:
    direct = [struct for base in bases for struct in base.__subclasses__()]
    return [*direct, *_structs(*direct)] if direct else []


def _complete(operation: dict[str, Any], handler: HTTPRouteHandler, components: dict[str, Any]) -> None:
    operation["summary"] = re.split(r"[.:;]\s", operation["description"] + " ")[0]
    operation.pop("deprecated", None)
    if (body := handler.parsed_data_field) is not None:
        _describe_body(operation["requestBody"], body.annotation, components)
    for parameter in operation.get("parameters", ()):
        _tidy(parameter)
    _describe_success(operation, handler)
    for status in _possible_errors(handler, operation):
        operation["responses"][str(status)] = _error(status)
    for response in operation["responses"].values():
        response.setdefault("headers", {})["X-Request-Id"] = {"schema": {"type": "string"}}
    if not handler.opt.get("public"):
        operation["security"] = [{"bearer": []}, {"apiKey": []}]


def _describe_body(request_body: dict[str, Any], annotation: Any, components: dict[str, Any]) -> None:
    (schema,), _ = msgspec.json.schema_components([annotation], ref_template=_REF)
    content = {"schema": schema, "example": openapi_examples.example(schema, components)}
    request_body["content"] = {"application/json": content}


def _tidy(parameter: dict[str, Any]) -> None:
    """Say what may be sent: a query has no null, and msgspec's limits are the parameter's."""
    for noise in ("deprecated", "allowEmptyValue", "allowReserved"):
        parameter.pop(noise, None)
    schema = parameter["schema"]
    schema.pop("description", None)
    alternatives = [each for each in schema.pop("oneOf", ()) if each.get("type") != "null"]
    if alternatives:
        schema.update(alternatives[0])
    if "example" not in parameter and (value := openapi_examples.example(schema, {}, parameter["name"])) is not None:
        parameter["example"] = value


def _describe_success(operation: dict[str, Any], handler: HTTPRouteHandler) -> None:
    """Add what the return type cannot say: the other status, the headers, the Idempotency-Key."""
    opt, responses = handler.opt, operation["responses"]
    success = responses[str(handler.status_code)]
    success["description"] = "Done." if handler.status_code == 200 else "Stored."
    headers = success.setdefault("headers", {})
    if opt.get("versioned"):
        headers["ETag"] = {"schema": {"type": "string"}, "description": "The version, for `If-Match`."}
    if opt.get("located"):
        headers["Location"] = {"schema": {"type": "string"}, "description": "Where it can be read."}
    if opt.get("idempotent"):
        headers["Idempotent-Replayed"] = {"schema": {"type": "string", "const": "true"}}
        operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)
    if opt.get("also_200"):
        responses["200"] = {**success, "description": "It stood already.", "headers": dict(headers)}


def _possible_errors(handler: HTTPRouteHandler, operation: dict[str, Any]) -> set[int]:
    opt = handler.opt
    errors = {400, 503} if not opt.get("any_query") else set()
    if not opt.get("public"):
        errors |= {401, 402, 403, 429}
    if handler.parsed_data_field is not None:
        errors |= {404, 409, 413, 415}
    names = {parameter["name"] for parameter in operation.get("parameters", ())}
    if any(parameter["in"] == "path" for parameter in operation.get("parameters", ())):
        errors.add(404)
    if "If-Match" in names:
        errors.add(412)
    return errors | set(opt.get("errors", ()))


def _error(status: int) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": _ERRORS[status],
        "content": {PROBLEM_JSON: {"schema": {"$ref": _REF.format(name="Problem")}}},
    }
    header = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}.get(status)
    if header is not None:
        response["headers"] = {header: {"schema": {"type": "string"}}}
    return response


@get("/openapi.json", operation_id="getOpenapi", public=True, include_in_schema=False)
async def get_openapi(request: ApiRequest) -> Response[bytes]:
    """Return the contract."""
    return Response(request.parts.openapi_json, media_type=MediaType.JSON)


@get("/docs", operation_id="getDocs", public=True, include_in_schema=False, media_type=MediaType.HTML)
async def get_docs() -> str:
    """Return the page that shows the contract; it needs no internet."""
    return _PAGE


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
