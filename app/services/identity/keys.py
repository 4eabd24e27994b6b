"""API keys: create, narrow, rotate and revoke them, never beyond the caller's access; resolve a key to its caller."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec
from sqlalchemy import Connection, Select, bindparam, or_, update

from app.caller import (
    ALL_SCOPES,
    EVERYTHING,
    KEYS_WRITE,
    MEMORIES_READ,
    RANKS,
    ROLE_SCOPES,
    SERVER_ADMIN,
    TEAM_ADMIN,
    Caller,
    Role,
)
from app.clock import new_id, now_ms
from app.errors import Conflict, Forbidden, Invalid, NotFound
from app.services.audit import entries
from app.services.identity import credentials, members
from app.services.projects import projects
from app.services.shared import paging
from app.store.models import api_keys, team_members
from app.store.prepared import PreparedStatement, prepare_insert
from app.store.records import ApiKey, columns
from app.store.scope import owned, unscoped

_COLUMNS: Final = columns(api_keys, ApiKey)
_INSERT: Final = prepare_insert(api_keys)

DAY_MS: Final = 86_400_000
EXPIRES_SOON_MS: Final = 7 * DAY_MS
UNUSED_MS: Final = 90 * DAY_MS
MAX_OVERLAP_SECONDS: Final = 604_800

State = Literal["active", "revoked", "expired", "expires soon", "unused"]


class StoredKey(NamedTuple):
    """The columns of a key that authentication needs, with the current role of its member."""

    id: str
    secret_hash: str
    team_id: str | None
    project_id: str | None
    user_id: str | None
    scopes: list[str]
    expires_at_epoch: int | None
    revoked_at_epoch: int | None
    role: Role | None


def _with_role() -> Select[Any]:
    membership = (team_members.c.team_id == api_keys.c.team_id) & (team_members.c.user_id == api_keys.c.user_id)
    stored = [api_keys.c[name] for name in StoredKey._fields[:-1]]
    return unscoped(api_keys, *stored, team_members.c.role).select_from(api_keys.outerjoin(team_members, membership))


_BY_PUBLIC_ID: Final = PreparedStatement(_with_role().where(api_keys.c.public_id == bindparam("public_id")), StoredKey)
_BY_ID: Final = PreparedStatement(_with_role().where(api_keys.c.id == bindparam("id")), StoredKey)


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key to create, in the caller's team. Project, member and expiry default to those of the caller."""

    name: str | None = None
    label: str | None = None
    scopes: tuple[str, ...] = (MEMORIES_READ,)
    project_id: str | None = None
    user_id: str | None = None
    expires_in_days: int | None = None


def find(connection: Connection, public_id: str) -> StoredKey | None:
    """Return the key with this public id, if there is one."""
    return _BY_PUBLIC_ID.first(connection, {"public_id": public_id})


def find_by_id(connection: Connection, key_id: str) -> StoredKey | None:
    """Return the key with this id, if there is one."""
    return _BY_ID.first(connection, {"id": key_id})


def caller_of(key: StoredKey, *, request_id: str) -> Caller | None:
    """Return the caller that a key authenticates, its scopes limited by its member's role.

    None when the key is revoked or expired, or its member has left the team.
    """
    now = now_ms()
    if key.revoked_at_epoch is not None and key.revoked_at_epoch <= now:
        return None
    if key.expires_at_epoch is not None and key.expires_at_epoch <= now:
        return None
    if key.user_id is not None and key.role is None:
        return None
    return Caller(
        team_id=key.team_id,
        project_id=key.project_id,
        key_id=key.id,
        user_id=key.user_id,
        role=key.role,
        scopes=effective_scopes(key.scopes, key.role),
        expires_at_epoch=key.expires_at_epoch,
        request_id=request_id,
    )


def effective_scopes(scopes: Iterable[str], role: Role | None) -> frozenset[str]:
    """Return a key's scopes, limited to those of its member's role."""
    granted = frozenset(scopes)
    if role is None:
        return granted
    allowed = ROLE_SCOPES[role]
    return allowed if EVERYTHING in granted else granted & allowed


def state(key: ApiKey) -> State:
    """Return whether a key is valid, and whether it needs attention."""
    now = now_ms()
    if key.revoked_at_epoch is not None and key.revoked_at_epoch <= now:
        return "revoked"
    if key.expires_at_epoch is not None and key.expires_at_epoch <= now + EXPIRES_SOON_MS:
        return "expired" if key.expires_at_epoch <= now else "expires soon"
    last_used = key.last_used_at_epoch or key.created_at_epoch
    return "unused" if last_used <= now - UNUSED_MS else "active"


def create(
    connection: Connection, caller: Caller, new: NewKey, key: credentials.PresentedKey, secret_hash: str
) -> ApiKey:
    """Store a key that was minted and hashed outside the transaction.

    Raises Forbidden when it would exceed the caller's access in any way, NotFound for an unknown member.
    """
    caller.require(KEYS_WRITE)
    _require_no_token(caller)
    _require_known(new.scopes)
    now = now_ms()
    created = ApiKey(
        id=new_id(),
        public_id=key.public_id,
        team_id=caller.team_id,
        project_id=new.project_id or caller.project_id,
        user_id=new.user_id or caller.user_id,
        name=new.name,
        label=new.label,
        scopes=sorted(set(new.scopes)),
        created_by=caller.key_id,
        rotated_from=None,
        created_at_epoch=now,
        updated_at_epoch=now,
        expires_at_epoch=_expiry(now, new.expires_in_days) or caller.expires_at_epoch,
        revoked_at_epoch=None,
        last_used_at_epoch=None,
    )
    _require_not_wider(caller, created)
    if new.project_id is not None:
        projects.require(connection, caller, new.project_id)
    if new.user_id is not None:
        members.get(connection, caller, new.user_id)
    _INSERT.run(connection, {**msgspec.structs.asdict(created), "secret_hash": secret_hash})
    _record(connection, caller, "key.create", created)
    return created


def get(connection: Connection, caller: Caller, key_id: str) -> ApiKey:
    """Return a key of the caller's team (or project); NotFound otherwise."""
    row = connection.execute(owned(api_keys, caller, *_COLUMNS).where(api_keys.c.id == key_id)).first()
    if row is None:
        raise NotFound("key")
    return ApiKey(*row)


def find_in_any_team(connection: Connection, caller: Caller, key: str) -> ApiKey:
    """Return a key of any team by its id, public id or prefix; needs server:admin. NotFound if there is none."""
    caller.require(SERVER_ADMIN)
    matches = or_(api_keys.c.id == key, api_keys.c.public_id == key.removeprefix(credentials.PREFIX))
    row = connection.execute(unscoped(api_keys, *_COLUMNS).where(matches)).first()
    if row is None:
        raise NotFound("key")
    return ApiKey(*row)


def list_page(connection: Connection, caller: Caller, *, limit: int, cursor: str | None) -> paging.Page[ApiKey]:
    """Return the keys of the caller's team (or project), including revoked ones, newest first."""
    return paging.page(
        connection,
        owned(api_keys, caller, *_COLUMNS),
        ApiKey,
        (api_keys.c.created_at_epoch, api_keys.c.id),
        limit=limit,
        cursor=cursor,
        bound_to=paging.binding(caller, "keys"),
    )


def list_all(connection: Connection, caller: Caller) -> list[ApiKey]:
    """Return every key of the caller's team, oldest first."""
    oldest_first = (api_keys.c.created_at_epoch, api_keys.c.id)
    rows = connection.execute(owned(api_keys, caller, *_COLUMNS).order_by(*oldest_first))
    return [ApiKey(*row) for row in rows]


def needing_attention(connection: Connection, caller: Caller) -> list[ApiKey]:
    """Return the keys of all teams that expire soon or are unused; needs server:admin."""
    caller.require(SERVER_ADMIN)
    oldest_first = (api_keys.c.created_at_epoch, api_keys.c.id)
    rows = connection.execute(unscoped(api_keys, *_COLUMNS).order_by(*oldest_first))
    return [key for row in rows if state(key := ApiKey(*row)) in ("expires soon", "unused")]


def change(connection: Connection, caller: Caller, key_id: str, changes: Mapping[str, Any]) -> ApiKey:
    """Update a key's name, label, scopes, project_id or expires_in_days; fields absent from `changes` are kept.

    Raises Forbidden when the key exceeds the caller's access, or would exceed its own current access.
    """
    caller.require(KEYS_WRITE)
    existing = get(connection, caller, key_id)
    _require_not_wider(caller, existing)
    now = now_ms()
    values = dict(changes)
    if "scopes" in values:
        _require_known(values["scopes"])
        values["scopes"] = sorted(set(values["scopes"]))
    if "expires_in_days" in values:
        values["expires_at_epoch"] = _expiry(now, values.pop("expires_in_days"))
    changed = msgspec.structs.replace(existing, **values, updated_at_epoch=now)
    _require_not_wider(_holder_of(existing), changed)
    if changed.project_id is not None and changed.project_id != existing.project_id:
        projects.require(connection, caller, changed.project_id)
    _set(connection, key_id, {**values, "updated_at_epoch": now})
    _record(connection, caller, "key.update", changed)
    return changed


def rotate(
    connection: Connection,
    caller: Caller,
    key_id: str,
    key: credentials.PresentedKey,
    secret_hash: str,
    *,
    overlap_seconds: int = 0,
) -> ApiKey:
    """Replace a key by one with a new secret, the same access and expiry. The old one works until the overlap ends.

    Raises Forbidden when the key exceeds the caller's access, Conflict when it is no longer valid.
    """
    caller.require(KEYS_WRITE)
    _require_no_token(caller)
    existing = get(connection, caller, key_id)
    _require_not_wider(caller, existing)
    if existing.revoked_at_epoch is not None or state(existing) == "expired":
        raise Conflict("The key has already been revoked or rotated, or it has expired.")
    now = now_ms()
    rotated = msgspec.structs.replace(
        existing,
        id=new_id(),
        public_id=key.public_id,
        created_by=caller.key_id,
        rotated_from=existing.id,
        created_at_epoch=now,
        updated_at_epoch=now,
        last_used_at_epoch=None,
    )
    _INSERT.run(connection, {**msgspec.structs.asdict(rotated), "secret_hash": secret_hash})
    _set(connection, existing.id, {"revoked_at_epoch": now + overlap_seconds * 1000, "updated_at_epoch": now})
    _record(connection, caller, "key.rotate", existing)
    return rotated


def revoke(connection: Connection, caller: Caller, key_id: str) -> ApiKey:
    """Revoke a key with immediate effect; a key that is already revoked keeps its first revocation time.

    Raises Forbidden when the key has scopes the caller lacks. Its expiry and its member do not matter here: it must
    always be possible to revoke a leaked key.
    """
    caller.require(KEYS_WRITE)
    existing = get(connection, caller, key_id)
    _require_not_stronger(caller, existing)
    now = now_ms()
    if existing.revoked_at_epoch is not None and existing.revoked_at_epoch <= now:
        return existing
    _set(connection, key_id, {"revoked_at_epoch": now, "updated_at_epoch": now})
    _record(connection, caller, "key.revoke", existing)
    return msgspec.structs.replace(existing, revoked_at_epoch=now, updated_at_epoch=now)


def stamp_used(connection: Connection, last_used: Mapping[str, int]) -> None:
    """Store when keys were last used: {key id: epoch ms}. One plain UPDATE each, in one batch."""
    statement = update(api_keys).where(api_keys.c.id == bindparam("key_id"))
    rows: list[dict[str, Any]] = [{"key_id": key_id, "used": used} for key_id, used in last_used.items()]
    connection.execute(statement.values(last_used_at_epoch=bindparam("used")), rows)


def replace_hash(connection: Connection, key_id: str, *, outdated: str, renewed: str) -> None:
    """Replace a key's hash by one with the current parameters, unless it has been changed in the meantime."""
    same = (api_keys.c.id == key_id) & (api_keys.c.secret_hash == outdated)
    connection.execute(update(api_keys).where(same).values(secret_hash=renewed))


def _set(connection: Connection, key_id: str, values: dict[str, Any]) -> None:
    connection.execute(update(api_keys).where(api_keys.c.id == key_id).values(values))


def _record(connection: Connection, caller: Caller, action: str, key: ApiKey) -> None:
    entries.record(connection, caller, action, target=("key", key.id), project_id=key.project_id)


def _expiry(now: int, days: int | None) -> int | None:
    return None if days is None else now + days * DAY_MS


def _holder_of(key: ApiKey) -> Caller:
    """Return the caller that a key makes of its holder, ignoring the member's role."""
    return Caller(
        team_id=key.team_id,
        project_id=key.project_id,
        user_id=key.user_id,
        scopes=frozenset(key.scopes),
        expires_at_epoch=key.expires_at_epoch,
    )


def _require_known(scopes: Iterable[str]) -> None:
    unknown = sorted(set(scopes) - ALL_SCOPES)
    if unknown:
        raise Invalid.field("scopes", f"{unknown[0]!r} is not a scope; must be one of {', '.join(sorted(ALL_SCOPES))}")


def _require_no_token(caller: Caller) -> None:
    if caller.by_token:
        raise Forbidden("An access token cannot create API keys or tokens.")


def _require_not_wider(caller: Caller, key: ApiKey) -> None:
    """Raise Forbidden when a key exceeds the caller in project, member, lifetime or scopes."""
    if caller.project_id is not None and key.project_id != caller.project_id:
        raise Forbidden("The key would reach beyond the caller's own project.")
    if caller.user_id is not None and key.user_id != caller.user_id:
        raise Forbidden("The key would belong to a different member than the caller's own.")
    if caller.expires_at_epoch is not None and (key.expires_at_epoch or caller.expires_at_epoch + 1) > (
        caller.expires_at_epoch
    ):
        raise Forbidden("The key would expire later than the caller's own.")
    _require_not_stronger(caller, key)


def _require_not_stronger(caller: Caller, key: ApiKey) -> None:
    """Raise Forbidden when a key can do more than the caller, now or after a promotion of its member."""
    is_own = key.user_id == caller.user_id
    for scope in sorted(effective_scopes(key.scopes, caller.role if is_own else None)):
        if not caller.may(scope):
            raise Forbidden(f"The scope {scope} exceeds the caller's own scopes.")
    administers = not {TEAM_ADMIN, EVERYTHING}.isdisjoint(key.scopes)
    if administers and not is_own and key.user_id is not None and caller.rank < RANKS["owner"]:
        raise Forbidden("The key's member could hold a role above the caller's own.")
