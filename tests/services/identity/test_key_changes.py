"""Changing, rotating and revoking keys: never beyond the caller's own access."""

from collections.abc import Callable

import pytest
from sqlalchemy import update

from app.caller import EVERYTHING, KEYS_WRITE, MEMORIES_READ, MEMORIES_WRITE, TEAM_ADMIN, Caller
from app.clock import now_ms
from app.errors import Conflict, Forbidden, NotFound
from app.services.identity import keys
from app.services.identity.keys import DAY_MS
from app.store.models import api_keys
from app.store.records import ApiKey
from tests.services.identity.team_with_keys import HASH, TeamWithKeys

READER = (MEMORIES_READ, KEYS_WRITE)

Act = Callable[[TeamWithKeys, Caller, ApiKey], ApiKey]
ROTATE: Act = lambda team, caller, key: team.rotate(caller, key)  # noqa: E731
RENAME: Act = lambda team, caller, key: team.change(caller, key, name="mine")  # noqa: E731
REVOKE: Act = lambda team, caller, key: team.revoke(caller, key)  # noqa: E731


@pytest.mark.parametrize("act", [ROTATE, RENAME, REVOKE])
@pytest.mark.parametrize("scopes", [(EVERYTHING,), (MEMORIES_READ, MEMORIES_WRITE), (TEAM_ADMIN,)])
def test_stronger_key_cannot_be_changed(team: TeamWithKeys, act: Act, scopes: tuple[str, ...]):
    """Rotating a key reveals its new secret; changing or revoking it locks its owner out."""
    stronger = team.create(team.owner, scopes=scopes)

    with pytest.raises(Forbidden):
        act(team, team.caller_with(scopes=READER), stronger)


@pytest.mark.parametrize("act", [ROTATE, RENAME])
def test_team_key_is_invisible_to_a_project_key(team: TeamWithKeys, act: Act):
    """A project key only sees the keys of its project."""
    of_team = team.create(team.owner)

    with pytest.raises(NotFound):
        act(team, team.caller_with(scopes=READER, project_id=team.project_id), of_team)


@pytest.mark.parametrize("act", [ROTATE, RENAME])
def test_key_with_a_later_expiry_cannot_be_changed(team: TeamWithKeys, act: Act):
    """The new secret would outlive the key that created it."""
    unending = team.create(team.owner)

    with pytest.raises(Forbidden):
        act(team, team.caller_with(scopes=READER, expires_in_days=1), unending)


@pytest.mark.parametrize("act", [ROTATE, RENAME])
def test_members_key_cannot_change_those_of_others(team: TeamWithKeys, act: Act):
    """With it, one member could act as another."""
    ann, bob = team.add_member("ann", "admin"), team.add_member("bob", "viewer")

    with pytest.raises(Forbidden):
        act(team, team.caller_with(scopes=READER, user_id=ann), team.create(team.owner, user_id=bob))


def test_leaked_key_of_another_member_can_be_revoked(team: TeamWithKeys):
    """An admin may revoke a weaker key of another member, even one with a later expiry: revoking grants nothing."""
    ann, bob = team.add_member("ann", "admin"), team.add_member("bob", "viewer")
    leaked = team.create(team.owner, user_id=bob)

    revoked = team.revoke(team.caller_with(scopes=READER, user_id=ann, expires_in_days=1), leaked)

    assert revoked.revoked_at_epoch is not None


def test_admin_cannot_revoke_an_owners_key(team: TeamWithKeys):
    """Nobody may take access away from a higher role."""
    ann, olga = team.add_member("ann", "admin"), team.add_member("olga", "owner")
    of_owner = team.create(team.owner, scopes=(TEAM_ADMIN,), user_id=olga)

    with pytest.raises(Forbidden):
        team.revoke(team.caller_with(scopes=(EVERYTHING,), user_id=ann), of_owner)


def test_key_can_rotate_itself(team: TeamWithKeys):
    """The holder of a key may always replace it by one with the same access."""
    ann = team.add_member("ann", "admin")
    key = team.create(team.owner, scopes=(EVERYTHING,), user_id=ann, project_id=team.project_id, expires_in_days=5)

    rotated = team.rotate(team.caller_of(key), key)

    same = ("team_id", "project_id", "user_id", "scopes", "expires_at_epoch", "name", "label")
    assert [getattr(rotated, name) for name in same] == [getattr(key, name) for name in same]
    assert rotated.rotated_from == key.id


def test_overlap_ends_on_time(team: TeamWithKeys):
    """Until then both keys are valid."""
    key, before = team.create(team.owner), now_ms()

    team.rotate(team.owner, key, overlap_seconds=60)

    ends = team.stored(key).revoked_at_epoch
    assert ends is not None
    assert before + 60_000 <= ends <= now_ms() + 60_000


def test_key_is_rotated_only_once(team: TeamWithKeys):
    """During the overlap a key already has a successor."""
    key = team.create(team.owner)
    team.rotate(team.owner, key, overlap_seconds=60)

    with pytest.raises(Conflict):
        team.rotate(team.owner, key)


def test_revoked_or_expired_key_cannot_be_rotated(team: TeamWithKeys):
    """Otherwise its access would come back under a new id."""
    revoked, expired = team.create(team.owner), team.create(team.owner, expires_in_days=1)
    team.revoke(team.owner, revoked)
    with team.database.write() as connection:
        connection.execute(update(api_keys).where(api_keys.c.id == expired.id).values(expires_at_epoch=now_ms() - 1))

    for key in (revoked, expired):
        with pytest.raises(Conflict):
            team.rotate(team.owner, key)


def test_revoking_again_changes_nothing(team: TeamWithKeys):
    """The first revocation time is kept."""
    key = team.create(team.owner)
    first = team.revoke(team.owner, key)

    assert team.revoke(team.owner, key).revoked_at_epoch == first.revoked_at_epoch


def test_revoking_ends_an_overlap(team: TeamWithKeys):
    """A leaked key can be stopped immediately."""
    key = team.create(team.owner)
    team.rotate(team.owner, key, overlap_seconds=3600)

    assert (team.revoke(team.owner, key).revoked_at_epoch or 0) <= now_ms()


def test_key_can_be_renamed_and_narrowed(team: TeamWithKeys):
    """Fewer scopes, one project, an earlier expiry."""
    key = team.create(team.owner, scopes=(MEMORIES_READ, MEMORIES_WRITE))

    narrowed = team.change(
        team.owner, key, name="ci", scopes=[MEMORIES_READ], project_id=team.project_id, expires_in_days=1
    )

    assert (narrowed.name, narrowed.scopes, narrowed.project_id) == ("ci", [MEMORIES_READ], team.project_id)
    assert team.stored(key) == narrowed


@pytest.mark.parametrize(
    "wider",
    [
        {"scopes": [MEMORIES_READ, MEMORIES_WRITE]},
        {"scopes": [EVERYTHING]},
        {"project_id": None},
        {"expires_in_days": 3},
        {"expires_in_days": None},
    ],
)
def test_not_even_the_owner_can_widen_a_key(team: TeamWithKeys, wider: dict[str, object]):
    """The access of a key never grows after its creation; more access needs a new key."""
    key = team.create(team.owner, project_id=team.project_id, expires_in_days=2)

    with pytest.raises(Forbidden):
        team.change(team.owner, key, **wider)


def test_key_cannot_be_moved_to_another_project(team: TeamWithKeys):
    """Another project is not part of the first."""
    key = team.create(team.owner, project_id=team.project_id)

    with pytest.raises(Forbidden):
        team.change(team.owner, key, project_id=team.other_project_id)


def test_team_wildcard_can_be_narrowed_to_any_team_scope(team: TeamWithKeys):
    """`*` includes every scope of the team."""
    key = team.create(team.owner, scopes=(EVERYTHING,))

    assert team.change(team.owner, key, scopes=[TEAM_ADMIN]).scopes == [TEAM_ADMIN]


def test_state_shows_which_keys_need_attention(team: TeamWithKeys):
    """Ninety days without use, or less than seven days to expiry, is a state of its own."""
    key, now = team.create(team.owner), now_ms()
    variants = [
        with_fields(key),
        with_fields(key, revoked_at_epoch=now - 1),
        with_fields(key, revoked_at_epoch=now + 60_000),
        with_fields(key, expires_at_epoch=now - 1),
        with_fields(key, expires_at_epoch=now + 6 * DAY_MS),
        with_fields(key, created_at_epoch=now - 91 * DAY_MS),
        with_fields(key, created_at_epoch=now - 91 * DAY_MS, last_used_at_epoch=now - DAY_MS),
    ]

    states = ["active", "revoked", "active", "expired", "expires soon", "unused", "active"]
    assert [keys.state(variant) for variant in variants] == states


def with_fields(key: ApiKey, **fields: object) -> ApiKey:
    values = {name: getattr(key, name) for name in ApiKey.__struct_fields__}
    return ApiKey(**{**values, **fields})


def test_last_use_and_renewed_hashes_change_nothing_else(team: TeamWithKeys):
    """The last use is one column; a hash that has changed in the meantime is not overwritten."""
    key = team.create(team.owner)

    with team.database.write() as connection:
        keys.stamp_used(connection, {key.id: 17})
        keys.replace_hash(connection, key.id, outdated=HASH, renewed="new")
        keys.replace_hash(connection, key.id, outdated=HASH, renewed="late")

    assert team.stored(key) == with_fields(key, last_used_at_epoch=17)
    with team.database.read() as connection:
        row = keys.find_by_id(connection, key.id)
    assert row is not None
    assert row.secret_hash == "new"
