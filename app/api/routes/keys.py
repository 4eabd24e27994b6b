"""/v1/keys: a team's API keys. A secret is shown once, in the reply to the request that created it."""

from functools import partial
from typing import Annotated

from litestar import Response, Router, delete, get, patch, post
from litestar.params import JSONBody
from msgspec import UNSET, Meta, UnsetType, structs

from app.api.http.idempotency import PostResult, run_once
from app.api.http.parameters import Cursor, Limit, PathId
from app.api.http.request import ApiRequest
from app.api.http.schemas import Id, Label, Name, Wire, extract_changes
from app.api.http.thread_pools import reading, writing
from app.caller import KEYS_WRITE, MEMORIES_READ
from app.services.identity import credentials, keys
from app.services.identity.credentials import PresentedKey
from app.store.records import ApiKey

Scopes = Annotated[list[str], Meta(min_length=1, max_length=20, description="What the key permits.")]
Days = Annotated[int, Meta(ge=1, le=365)]


class KeyCreate(Wire, frozen=True, kw_only=True):
    """A key to create; it cannot grant more than the caller's own.

    An omitted `projectId`, `userId` or expiry is inherited from the caller; omitted `scopes` mean `memories:read`.
    """

    name: Name | None = None
    label: Label | None = None
    scopes: Scopes | None = None
    project_id: Id | None = None
    user_id: Id | None = None
    expires_in_days: Days | None = None


class KeyPatch(Wire, frozen=True, kw_only=True):
    """What to rename or restrict. A key is never given more permissions."""

    name: Name | UnsetType | None = UNSET
    label: Label | UnsetType | None = UNSET
    scopes: Scopes | UnsetType = UNSET
    project_id: Id | UnsetType | None = UNSET
    expires_in_days: Days | UnsetType | None = UNSET


class KeyRotate(Wire, frozen=True, kw_only=True):
    """How long the old key keeps working alongside the new one."""

    overlap_seconds: Annotated[int, Meta(ge=0, le=keys.MAX_OVERLAP_SECONDS)] = 0


class KeyView(Wire, frozen=True, kw_only=True):
    """A key without its secret. `prefix` is its public part; a future `revokedAtEpoch` ends a rotation's overlap."""

    id: str
    prefix: str
    team_id: str | None
    project_id: str | None
    user_id: str | None
    name: str | None
    label: str | None
    scopes: list[str]
    created_by: str | None
    rotated_from: str | None
    created_at_epoch: int
    updated_at_epoch: int
    expires_at_epoch: int | None
    revoked_at_epoch: int | None
    last_used_at_epoch: int | None


class KeyMade(Wire, frozen=True, kw_only=True):
    """A new key. The secret is shown once: `apiKey` is null in a replayed reply."""

    id: str
    api_key: str | None
    prefix: str
    scopes: list[str]
    project_id: str | None
    expires_at_epoch: int | None
    mcp_url: str | None
    connect_command: str | None


class KeyReply(Wire, frozen=True, kw_only=True):
    """One key."""

    key: KeyView


class KeyPage(Wire, frozen=True, kw_only=True):
    """A page of keys."""

    keys: list[KeyView]
    next_cursor: str | None


class KeyRevoked(Wire, frozen=True, kw_only=True):
    """The key was revoked."""

    deleted: bool
    id: str


@get("/keys", operation_id="listKeys", scope=KEYS_WRITE)
@reading
def list_keys(request: ApiRequest, limit: Limit = 50, cursor: Cursor = None) -> KeyPage:
    """List the keys of the team, newest first, including revoked ones."""
    with request.database.read() as connection:
        page = keys.list_page(connection, request.caller, limit=limit, cursor=cursor)
    return KeyPage(keys=[_view(key) for key in page.rows], next_cursor=page.next_cursor)


@post("/keys", operation_id="createKey", scope=KEYS_WRITE, idempotent=True, located=True)
async def create_key(request: ApiRequest, data: JSONBody[KeyCreate]) -> Response[KeyMade]:
    """Create a key. 403 if it would permit anything that the caller's own key does not."""
    minted = credentials.mint()
    secret_hash = await request.app_state.authenticator.hash_secret(minted.secret)
    return await request.app_state.thread_pools.write(partial(_create, request, data, minted, secret_hash))


def _create(request: ApiRequest, data: KeyCreate, minted: PresentedKey, secret_hash: str) -> Response[KeyMade]:
    fields = structs.asdict(data)
    new = keys.NewKey(**{**fields, "scopes": tuple(data.scopes or (MEMORIES_READ,))})
    with request.database.write() as connection:
        return run_once(
            request,
            connection,
            perform=lambda: _created(keys.create(connection, request.caller, new, minted, secret_hash), minted),
            replay=lambda ids: _to_key_made(keys.get(connection, request.caller, ids[0]), None),
        )


@get("/keys/{key_id:str}", operation_id="getKey", scope=KEYS_WRITE)
@reading
def get_key(request: ApiRequest, key_id: PathId) -> KeyReply:
    """Get a key."""
    with request.database.read() as connection:
        return _reply(keys.get(connection, request.caller, key_id))


@patch("/keys/{key_id:str}", operation_id="updateKey", scope=KEYS_WRITE)
@writing
def update_key(request: ApiRequest, key_id: PathId, data: JSONBody[KeyPatch]) -> KeyReply:
    """Rename or restrict a key. 403 if it would gain permissions, or has more than the caller's own key."""
    with request.database.write() as connection:
        return _reply(keys.change(connection, request.caller, key_id, extract_changes(data)))


@delete("/keys/{key_id:str}", operation_id="revokeKey", scope=KEYS_WRITE, status_code=200)
@writing
def revoke_key(request: ApiRequest, key_id: PathId) -> KeyRevoked:
    """Revoke a key with immediate effect. It stays in the list. 403 if it permits more than the caller's own key."""
    with request.database.write() as connection:
        keys.revoke(connection, request.caller, key_id)
    return KeyRevoked(deleted=True, id=key_id)


@post("/keys/{key_id:str}/rotate", operation_id="rotateKey", scope=KEYS_WRITE, idempotent=True, located=True)
async def rotate_key(request: ApiRequest, key_id: PathId, data: JSONBody[KeyRotate | None] = None) -> Response[KeyMade]:
    """Replace a key with a new one. The old key works until the overlap ends. 409 if it is no longer active."""
    minted = credentials.mint()
    secret_hash = await request.app_state.authenticator.hash_secret(minted.secret)
    overlap_seconds = data.overlap_seconds if data is not None else 0
    return await request.app_state.thread_pools.write(
        partial(_rotate, request, key_id, minted, secret_hash, overlap_seconds)
    )


def _rotate(
    request: ApiRequest, key_id: str, minted: PresentedKey, secret_hash: str, overlap_seconds: int
) -> Response[KeyMade]:
    def perform() -> PostResult[KeyMade]:
        key = keys.rotate(connection, request.caller, key_id, minted, secret_hash, overlap_seconds=overlap_seconds)
        return _created(key, minted)

    with request.database.write() as connection:
        return run_once(
            request,
            connection,
            perform=perform,
            replay=lambda ids: _to_key_made(keys.get(connection, request.caller, ids[0]), None),
        )


router = Router("/", route_handlers=[list_keys, create_key, get_key, update_key, revoke_key, rotate_key], tags=["keys"])


def _view(key: ApiKey) -> KeyView:
    fields = structs.asdict(key)
    return KeyView(prefix=credentials.prefix_of(fields.pop("public_id")), **fields)


def _reply(key: ApiKey) -> KeyReply:
    return KeyReply(key=_view(key))


def _created(key: ApiKey, minted: PresentedKey) -> PostResult[KeyMade]:
    return PostResult([key.id], 201, _to_key_made(key, minted), {"Location": f"/v1/keys/{key.id}"})


def _to_key_made(key: ApiKey, minted: PresentedKey | None) -> KeyMade:
    return KeyMade(
        id=key.id,
        api_key=None if minted is None else credentials.format_key(minted),
        prefix=credentials.prefix_of(key.public_id),
        scopes=key.scopes,
        project_id=key.project_id,
        expires_at_epoch=key.expires_at_epoch,
        mcp_url=None,
        connect_command=None,
    )
