"""Is it alive, is it ready, what is it: the routes that monitors and hooks poll. They start and wait for nothing."""

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
    """The process lives."""

    status: Literal["ok"]


class Ready(Wire, frozen=True, kw_only=True):
    """Whether requests can be served: each part is ok, or says what is wrong."""

    status: Literal["ok", "degraded", "unavailable"]
    database: str
    migrations: str
    vectors: str


class VectorHealth(Wire, frozen=True, kw_only=True):
    """The vector index, as hooks read it."""

    state: VectorState


class HookHealth(Wire, frozen=True, kw_only=True):
    """What claude-mem's hooks poll."""

    status: Literal["ok"]
    version: str
    uptime: int
    mcp_connected: bool
    vectors: VectorHealth


class HookVersion(Wire, frozen=True, kw_only=True):
    """The version alone."""

    version: str


class Info(Wire, frozen=True, kw_only=True):
    """What this server is."""

    name: str
    version: str
    runtime: str
    auth_mode: str
    schema_version: str


@get("/healthz", operation_id="getHealth", public=True)
async def get_health() -> Alive:
    """Say that the process lives. Touches nothing."""
    return Alive(status="ok")


@get("/readyz", operation_id="getReadiness", public=True, also_503=True)
@reading
def get_readiness(request: ApiRequest) -> Response[Ready]:
    """Say whether requests can be served; the vector index being down is degraded, and still 200."""
    database, revision = request.parts.readiness.of_database()
    vectors = request.parts.vector_state()
    is_ready = database == revision == OK
    whole: Literal["ok", "degraded"] = "degraded" if vectors in ("connecting", "unavailable") else "ok"
    ready = Ready(status=whole if is_ready else "unavailable", database=database, migrations=revision, vectors=vectors)
    return Response(ready, status_code=200 if is_ready else 503)


@get("/api/health", operation_id="getHookHealth", public=True, any_query=True)
async def get_hook_health(request: ApiRequest) -> HookHealth:
    """Answer the poll of claude-mem's hooks."""
    return _hook_health(request)


@get("/api/readiness", operation_id="getHookReadiness", public=True, any_query=True)
async def get_hook_readiness(request: ApiRequest) -> HookHealth:
    """Answer the readiness poll of claude-mem's hooks."""
    return _hook_health(request)


@get("/api/version", operation_id="getHookVersion", public=True, any_query=True)
async def get_hook_version() -> HookVersion:
    """Say the version."""
    return HookVersion(version=VERSION)


@get("/v1/info", operation_id="getInfo", public=True)
async def get_info(request: ApiRequest) -> Info:
    """Say what this server is."""
    return Info(
        name=NAME,
        version=VERSION,
        runtime=_RUNTIME,
        auth_mode=request.parts.auth_mode,
        schema_version=request.parts.schema_version,
    )


router = Router(
    "/",
    route_handlers=[get_health, get_readiness, get_hook_health, get_hook_readiness, get_hook_version, get_info],
    tags=["health"],
)


def _hook_health(request: ApiRequest) -> HookHealth:
    state = request.parts.vector_state()
    return HookHealth(
        status="ok",
        version=VERSION,
        uptime=round(time.monotonic() - _STARTED),
        mcp_connected=state == "ready",
        vectors=VectorHealth(state=state),
    )
