"""/v1/auth: who the caller is, and short-lived access tokens that permit less than the key behind them."""

import uuid
from typing import Annotated, Any, Final

from litestar import Response, Router, get, post
from litestar.params import JSONBody
from msgspec import Meta

from app.api.http.idempotency import PostResult, run_once
from app.api.http.request import ApiRequest
from app.api.http.schemas import Id, Wire, to_view
from app.api.http.thread_pools import writing
from app.caller import Caller, Role
from app.clock import now_ms
from app.services.identity import tokens

_BEARER: Final = "Bearer"


class TokenRequest(Wire, frozen=True, kw_only=True):
    """The restrictions of a token; anything omitted is inherited from the API key."""

    scopes: Annotated[list[str], Meta(min_length=1, max_length=20)] | None = None
    project_id: Id | None = None
    ttl_seconds: Annotated[int, Meta(ge=1, le=tokens.MAX_TTL_SECONDS)] | None = None


class TokenReply(Wire, frozen=True, kw_only=True):
    """An access token, to be sent as a Bearer token. It is shown once: `accessToken` is null in a replayed reply."""

    access_token: str | None
    token_type: str
    expires_in: int
    scopes: list[str]
    project_id: str | None


class Whoami(Wire, frozen=True, kw_only=True):
    """The identity and the current permissions of the credential."""

    team_id: str | None
    project_id: str | None
    key_id: str | None
    user_id: str | None
    role: Role | None
    scopes: list[str]
    expires_at_epoch: int | None


@post("/auth/token", operation_id="createToken", idempotent=True)
@writing
def create_token(request: ApiRequest, data: JSONBody[TokenRequest]) -> Response[TokenReply]:
    """Create a short-lived access token that permits what the calling API key does, or less.

    Revoking the key also invalidates its tokens.
    """
    ttl_seconds = data.ttl_seconds or request.app_state.token_ttl_seconds
    restrictions: dict[str, Any] = {"scopes": data.scopes, "project_id": data.project_id}

    def perform() -> PostResult[TokenReply]:
        token_signer = request.app_state.authenticator.token_signer
        token = tokens.issue(connection, request.caller, token_signer, **restrictions, ttl_seconds=ttl_seconds)
        reply = _reply(token.access_token, token.expires_at_epoch, token.scopes, token.project_id)
        return PostResult([token.id], 201, reply)

    def replay(ids: list[str]) -> TokenReply:
        """Describe the token again: its id holds its time of creation, the repeated body everything else."""
        restricted = tokens.narrow_caller(connection, request.caller, **restrictions)
        expires_at_epoch_ms = min(_created_at_epoch_ms(ids[0]) + ttl_seconds * 1000, _latest_expiry_ms(request.caller))
        return _reply(None, expires_at_epoch_ms, sorted(restricted.scopes), restricted.project_id)

    with request.database.write() as connection:
        return run_once(request, connection, perform=perform, replay=replay)


@get("/auth/whoami", operation_id="whoami")
async def whoami(request: ApiRequest) -> Whoami:
    """Return who the credential belongs to and what it permits."""
    return to_view(Whoami, request.caller, scopes=sorted(request.caller.scopes))


router = Router("/", route_handlers=[create_token, whoami], tags=["auth"])


def _reply(token: str | None, expires_at_epoch_ms: int, scopes: list[str], project_id: str | None) -> TokenReply:
    seconds = max(0, round((expires_at_epoch_ms - now_ms()) / 1000))
    return TokenReply(
        access_token=token,
        token_type=_BEARER,
        expires_in=seconds,
        scopes=scopes,
        project_id=project_id,
    )


def _created_at_epoch_ms(token_id: str) -> int:
    """Return the timestamp in the first 48 bits of a UUIDv7."""
    return uuid.UUID(token_id).int >> 80


def _latest_expiry_ms(caller: Caller) -> int:
    return caller.expires_at_epoch or now_ms() + tokens.MAX_TTL_SECONDS * 1000
