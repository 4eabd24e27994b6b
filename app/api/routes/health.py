"""Liveness, readiness and version: the routes that monitors and hooks poll. None of them starts work or blocks."""

import platform
import time
from typing import Final, Literal

from litestar import Response, Router, get

from app.api.http.request import ApiRequest
from app.api.http.schemas import Wire
from app.api.http.thread_pools import reading
from app.services.operations.readiness import OK
from app.vectors.index import VectorState
from app.version import NAME, VERSION

_RUNTIME: Final = f"python {platform.python_version()}"
_STARTED: Final = time.monotonic()


class Alive(Wire, frozen=True, kw_only=True):
    """The process is running."""

    status: Literal["ok"]


class Ready(Wire, frozen=True, kw_only=True):
    """Whether requests can be served. Each part is `ok` or describes the problem."""

    status: Literal["ok", "degraded", "unavailable"]
    database: str
    migrations: str
    vectors: str


class VectorHealth(Wire, frozen=True, kw_only=True):
    """The state of the vector index, as hooks read it."""

    state: VectorState


class HookHealth(Wire, frozen=True, kw_only=True):
    """The reply that claude-mem's hooks poll for."""

    status: Literal["ok"]
    version: str
    uptime: int
    mcp_connected: bool
    vectors: VectorHealth


class HookVersion(Wire, frozen=True, kw_only=True):
    """The version of the server."""

    version: str


class Info(Wire, frozen=True, kw_only=True):
    """What this server is and runs on."""

    name: str
    version: str
    runtime: str
    auth_mode: str
    schema_version: str


@get("/healthz", operation_id="getHealth", public=True)
async def get_health() -> Alive:
    """Return 200 while the process is running. Accesses no other component."""
    return Alive(status="ok")


@get("/readyz", operation_id="getReadiness", public=True, also_503=True)
@reading
def get_readiness(request: ApiRequest) -> Response[Ready]:
    """Return whether requests can be served. An unavailable vector index is reported as degraded, still with 200."""
    database, revision = request.app_state.readiness.of_database()
    vectors = request.app_state.vector_state()
    is_ready = database == revision == OK
    status: Literal["ok", "degraded"] = "degraded" if vectors in ("connecting", "unavailable") else "ok"
    ready = Ready(status=status if is_ready else "unavailable", database=database, migrations=revision, vectors=vectors)
    return Response(ready, status_code=200 if is_ready else 503)


@get("/api/health", operation_id="getHookHealth", public=True, any_query=True)
async def get_hook_health(request: ApiRequest) -> HookHealth:
    """Answer the health poll of claude-mem's hooks."""
    return _hook_health(request)


@get("/api/readiness", operation_id="getHookReadiness", public=True, any_query=True)
async def get_hook_readiness(request: ApiRequest) -> HookHealth:
    """Answer the readiness poll of claude-mem's hooks."""
    return _hook_health(request)


@get("/api/version", operation_id="getHookVersion", public=True, any_query=True)
async def get_hook_version() -> HookVersion:
    """Return the version of the server."""
    return HookVersion(version=VERSION)


@get("/v1/info", operation_id="getInfo", public=True)
async def get_info(request: ApiRequest) -> Info:
    """Return the server's name, version, runtime, authentication mode and schema version."""
    return Info(
        name=NAME,
        version=VERSION,
        runtime=_RUNTIME,
        auth_mode=request.app_state.auth_mode,
        schema_version=request.app_state.schema_version,
    )


router = Router(
    "/",
    route_handlers=[get_health, get_readiness, get_hook_health, get_hook_readiness, get_hook_version, get_info],
    tags=["health"],
)


def _hook_health(request: ApiRequest) -> HookHealth:
    state = request.app_state.vector_state()
    return HookHealth(
        status="ok",
        version=VERSION,
        uptime=round(time.monotonic() - _STARTED),
        mcp_connected=state == "ready",
        vectors=VectorHealth(state=state),
    )
