"""ApiRequest: what a handler has at hand: the caller, the database, and a body that was decoded strictly."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from litestar import Request
from litestar.datastructures import State

from app.api.http.authentication import Authentication
from app.api.http.rate_limiting import OVER_QUOTA, Metering, UsedUp
from app.api.http.thread_pools import Workers
from app.caller import Caller
from app.errors import Unauthenticated
from app.services.memories.llm_chunker import Chunker
from app.services.operations.readiness import Readiness
from app.services.search.engine import SearchEngine
from app.services.shared import strict_json
from app.store.database import Database
from app.vectors.index import Index, VectorState

PARTS: Final = "parts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What main.py joined, as far as handlers need it. `last_used` gathers stamps until they are flushed."""

    database: Database
    workers: Workers
    authentication: Authentication
    metering: Metering
    readiness: Readiness
    search: SearchEngine
    auth_mode: str
    audit_reads: bool
    token_ttl_seconds: int
    schema_version: str
    openapi_json: bytes
    vectors: Index | None
    chunker: Chunker | None
    tallies: Path | None
    last_used: dict[str, int] = field(default_factory=dict)

    def vector_state(self) -> VectorState:
        """Say where the vector index stands, without waiting for it."""
        return "off" if self.vectors is None else self.vectors.state


class ApiRequest(Request[Any, Any, State]):
    """A request to /v1. `raw_body` holds the bytes of a body once it was decoded."""

    raw_body: bytes = b""

    @property
    def parts(self) -> Parts:
        """The parts of this server."""
        parts: Parts = self.app.state[PARTS]
        return parts

    @property
    def database(self) -> Database:
        """The database, for a visible `with request.database.read()` or `.write()`; it refuses a key over its quota."""
        whole = self.parts.database
        return UsedUp(whole) if self.scope["state"].get(OVER_QUOTA) else whole

    @property
    def caller(self) -> Caller:
        """Who asks."""
        caller = self.scope.get("auth")
        if not isinstance(caller, Caller):
            raise Unauthenticated
        return caller

    async def json(self) -> Any:
        """Return the body as the type of `data`, with its limits; Litestar's own conversion would take "10" for 10."""
        self.raw_body = await self.body()
        wanted = self.route_handler.parsed_data_field
        return strict_json.decode(self.raw_body, Any if wanted is None else wanted.raw)
