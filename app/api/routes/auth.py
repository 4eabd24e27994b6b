"""/v1/auth: who am I, and a short-lived token that may do less than I."""

import uuid
from typing import Annotated, Any, Final

from litestar import Response, Router, get, post
from litestar.params import JSONBody
from msgspec import Meta

from app.api.http.idempotency import Done, once
from app.api.http.request import ApiRequest
from app.api.http.schemas import Id, Wire
from app.api.http.thread_pools import writing
from app.caller import Caller, Role
from app.clock import now_ms
from app.services.identity import tokens

_BEARER: Final = "Bearer"


class TokenRequest(Wire, frozen=True, kw_only=True):
    """What the token shall be able to do: what is left out is the key's own."""

    scopes: Annotated[list[str], Meta(min_length=1, max_length=20)] | None = None
    project_id: Id | None = None
    ttl_seconds: Annotated[int, Meta(ge=1, le=tokens.MAX_TTL_SECONDS)] | None = None


class TokenReply(Wire, frozen=True, kw_only=True):
    """A token, to be sent as Bearer. `accessToken` is null when a repeated request is answered: it is shown once."""

    access_token: str | None
    token_type: str
    expires_in: int
    scopes: list[str]
    project_id: str | None


class Whoami(Wire, frozen=True, kw_only=True):
    """Who the credential makes of its holder, at this moment."""

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
    """Make an access token that narrows the API key it is asked for with, and dies with it."""
    ttl_seconds = data.ttl_seconds or request.parts.token_ttl_seconds
    wanted: dict[str, Any] = {"scopes": data.scopes, "project_id": data.project_id}

    def act() -> Done[TokenReply]:
        signing = request.parts.authentication.signing
        made = tokens.grant(connection, request.caller, signing, **wanted, ttl_seconds=ttl_seconds)
        reply = _reply(made.access_token, made.expires_at_epoch, made.scopes, made.project_id)
        return Done([made.id], 201, reply)

    def recall(ids: list[str]) -> TokenReply:
        """Describe the token again: its id holds the time it was made, the repeated body all the rest."""
        narrowed = tokens.narrowed(connection, request.caller, **wanted)
        expires = min(_made_at(ids[0]) + ttl_seconds * 1000, _life_of(request.caller))
        return _reply(None, expires, sorted(narrowed.scopes), narrowed.project_id)

    with request.database.write() as connection:
        return once(request, connection, act=act, recall=recall)


@get("/auth/whoami", operation_id="whoami")
async def whoami(request: ApiRequest) -> Whoami:
    """Say who asks, and what they may do."""
    caller = request.caller
    known = {name: getattr(caller, name) for name in Whoami.__struct_fields__}
    return Whoami(**{**known, "scopes": sorted(caller.scopes)})


router = Router("/", route_handlers=[create_token, whoami], tags=["auth"])


def _reply(token: str | None, expires_at_epoch: int, scopes: list[str], project_id: str | None) -> TokenReply:
    seconds = max(0, round((expires_at_epoch - now_ms()) / 1000))
    return TokenReply(
        access_token=token,
        token_type=_BEARER,
        expires_in=seconds,
        scopes=scopes,
        project_id=project_id,
    )


def _made_at(token_id: str) -> int:
    """Return the epoch ms that a UUIDv7 begins with."""
    return uuid.UUID(token_id).int >> 80


def _life_of(caller: Caller) -> int:
    return caller.expires_at_epoch or now_ms() + tokens.MAX_TTL_SECONDS * 1000
