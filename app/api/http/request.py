"""ApiRequest: what a handler has at hand: the caller, the database, and a strictly decoded body."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from litestar import Request
from litestar.datastructures import State

from app.api.http import monthly_quota
from app.api.http.authentication import Authenticator
from app.api.http.monthly_quota import MonthlyQuota
from app.api.http.rate_limiting import RateLimiter
from app.api.http.request_recorder import RequestRecorder
from app.api.http.thread_pools import ThreadPools
from app.caller import Caller
from app.errors import Unauthenticated
from app.services.memories.llm_chunker import Chunker
from app.services.operations.readiness import Readiness
from app.services.search.engine import SearchEngine
from app.services.shared import strict_json
from app.store.database import Database
from app.vectors.index import Index, VectorState

APP_STATE: Final = "app_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppState:
    """What main.py assembled for the handlers. `last_used` buffers timestamps of keys until they are stored."""

    database: Database
    thread_pools: ThreadPools
    authenticator: Authenticator
    rate_limiter: RateLimiter | None
    monthly_quota: MonthlyQuota | None
    recorder: RequestRecorder
    readiness: Readiness
    search: SearchEngine
    auth_mode: str
    audit_reads: bool
    token_ttl_seconds: int
    schema_version: str
    vectors: Index | None
    chunker: Chunker | None
    metrics_dir: Path | None
    last_used: dict[str, int] = field(default_factory=dict)

    def vector_state(self) -> VectorState:
        """Return the state of the vector index, without waiting for it."""
        return "off" if self.vectors is None else self.vectors.state


class ApiRequest(Request[Any, Any, State]):
    """A request to /v1. `raw_body` holds the bytes of the body once it has been decoded."""

    raw_body: bytes = b""

    @property
    def app_state(self) -> AppState:
        """The state that all requests share."""
        app_state: AppState = self.app.state[APP_STATE]
        return app_state

    @property
    def database(self) -> Database:
        """The database, for a visible `with request.database.read()`. Enforces the monthly quota before each commit."""
        return monthly_quota.enforce(self.app_state.database, self.scope)

    @property
    def caller(self) -> Caller:
        """The authenticated caller. Raises Unauthenticated on a public route."""
        caller = self.scope.get("auth")
        if not isinstance(caller, Caller):
            raise Unauthenticated
        return caller

    async def json(self) -> Any:
        """Return the body as the type of `data`, with its limits; Litestar itself would accept "10" for 10."""
        self.raw_body = await self.body()
        data_field = self.route_handler.parsed_data_field
        return strict_json.decode(self.raw_body, Any if data_field is None else data_field.raw)
