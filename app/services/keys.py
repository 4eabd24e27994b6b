"""API keys: make them, never wider than whoever makes them, and find who is behind one."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, bindparam, update

from app.caller import ALL_SCOPES, EVERYTHING, KEYS_WRITE, MEMORIES_READ, ROLE_SCOPES, SERVER_ADMIN, Caller, Role
from app.clock import new_id, now_ms
from app.errors import Forbidden, Invalid
from app.services import audit, credentials, projects
from app.store.models import api_keys, team_members
from app.store.prepared import Prepared, inserting
from app.store.records import ApiKey
from app.store.scope import every

_INSERT: Final = inserting(api_keys)
DAY_MS: Final = 86_400_000


class StoredKey(NamedTuple):
    """A key's row as authentication needs it, with the role its member has now."""

    id: str
    secret_hash: str
    team_id: str | None
    project_id: str | None
    user_id: str | None
    scopes: list[str]
    expires_at_epoch: int | None
    revoked_at_epoch: int | None
    role: Role | None


_LOOKUP: Final = Prepared(
    every(
        api_keys,
        *(api_keys.c[name] for name in StoredKey._fields[:-1]),
        team_members.c.role,
    )
    .select_from(
        api_keys.outerjoin(
            team_members,
            (team_members.c.team_id == api_keys.c.team_id) & (team_members.c.user_id == api_keys.c.user_id),
        )
    )
    .where(api_keys.c.public_id == bindparam("public_id")),
    StoredKey,
)


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a key shall be; its team is the caller's."""

    name: str | None = None
    label: str | None = None
    scopes: tuple[str, ...] = (MEMORIES_READ,)
    project_id: str | None = None
    user_id: str | None = None
    expires_in_days: int | None = None


def find(connection: Connection, public_id: str) -> StoredKey | None:
    """Return the key with this public id, if there is one."""
    return _LOOKUP.first(connection, {"public_id": public_id})


def caller_of(key: StoredKey, *, request_id: str) -> Caller | None:
    """Return who acts with a key now; None when it is revoked or expired. The member's role cuts its scopes."""
    if key.revoked_at_epoch is not None and key.revoked_at_epoch <= now_ms():
        return None
    if key.expires_at_epoch is not None and key.expires_at_epoch <= now_ms():
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
    """Return what a key may do: its scopes, cut by the role of its member."""
    granted = frozenset(scopes)
    if role is None:
        return granted
    allowed = ROLE_SCOPES[role]
    return allowed if EVERYTHING in granted else granted & allowed


def create(
    connection: Connection, caller: Caller, new: NewKey, key: credentials.PresentedKey, secret_hash: str
) -> ApiKey:
    """Store a key that was minted and hashed outside the transaction."""
    caller.require(KEYS_WRITE)
    _require_known(new.scopes)
    _require_not_wider(caller, new)
    if new.project_id is not None:
        projects.require(connection, caller, new.project_id)
    now = now_ms()
    made = ApiKey(
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
        expires_at_epoch=None if new.expires_in_days is None else now + new.expires_in_days * DAY_MS,
        revoked_at_epoch=None,
        last_used_at_epoch=None,
    )
    _INSERT.run(connection, {**msgspec.structs.asdict(made), "secret_hash": secret_hash})
    audit.record(connection, caller, "key.create", target=("key", made.id), project_id=made.project_id)
    return made


def stamp_used(connection: Connection, last_used: Mapping[str, int]) -> None:
    """Note when keys were last used: {key id: epoch ms}. One plain UPDATE each, in one batch."""
    statement = update(api_keys).where(api_keys.c.id == bindparam("key_id"))
    rows: list[dict[str, Any]] = [{"key_id": key_id, "used": used} for key_id, used in last_used.items()]
    connection.execute(statement.values(last_used_at_epoch=bindparam("used")), rows)


def _require_known(scopes: Iterable[str]) -> None:
    unknown = sorted(set(scopes) - ALL_SCOPES)
    if unknown:
        raise Invalid.field("scopes", f"{unknown[0]!r} is not a scope; allowed are {', '.join(sorted(ALL_SCOPES))}")


def _require_not_wider(caller: Caller, new: NewKey) -> None:
    if caller.by_token:
        raise Forbidden("An access token makes no keys.")
    for scope in new.scopes:
        if EVERYTHING not in caller.scopes and scope not in caller.scopes:
            raise Forbidden(f"The scope {scope} is wider than the caller's own.")
        if scope == SERVER_ADMIN and not caller.may(SERVER_ADMIN):
            raise Forbidden(f"The scope {scope} is wider than the caller's own.")
