"""Keys: nothing makes anything wider than itself, in each of the ways there are."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from sqlalchemy import update

from app.caller import (
    EVERYTHING,
    KEYS_WRITE,
    MEMORIES_READ,
    MEMORIES_WRITE,
    SERVER_ADMIN,
    TEAM_ADMIN,
    Caller,
    Role,
    server_owner,
)
from app.clock import now_ms
from app.errors import Conflict, Forbidden, Invalid, NotFound
from app.services.identity import credentials, keys, members, teams
from app.services.identity.keys import DAY_MS, NewKey
from app.services.projects import projects
from app.store.database import Database
from app.store.models import api_keys
from app.store.records import ApiKey

HASH = "no key of these tests is ever presented"
READER = (MEMORIES_READ, KEYS_WRITE)


@dataclass(frozen=True)
class World:
    """A team with two projects and an owner of no name."""

    database: Database
    owner: Caller
    project_id: str
    other_project_id: str

    def make(self, maker: Caller, **fields: object) -> ApiKey:
        with self.database.write() as connection:
            return keys.create(connection, maker, NewKey(**fields), credentials.mint(), HASH)  # type: ignore[arg-type]

    def holder(self, maker: Caller | None = None, **fields: object) -> Caller:
        """Return who acts with a key that is made for it."""
        return self.acting(self.make(maker or self.owner, **fields))

    def acting(self, key: ApiKey) -> Caller:
        with self.database.read() as connection:
            stored = keys.find_by_id(connection, key.id)
        assert stored is not None
        caller = keys.caller_of(stored, request_id="test")
        assert caller is not None
        return caller

    def member(self, user_id: str, role: Role) -> str:
        with self.database.write() as connection:
            members.add(connection, self.owner, user_id=user_id, role=role)
        return user_id

    def change(self, caller: Caller, key: ApiKey, **changes: object) -> ApiKey:
        with self.database.write() as connection:
            return keys.change(connection, caller, key.id, changes)

    def rotate(self, caller: Caller, key: ApiKey, overlap_seconds: int = 0) -> ApiKey:
        with self.database.write() as connection:
            return keys.rotate(connection, caller, key.id, credentials.mint(), HASH, overlap_seconds=overlap_seconds)

    def revoke(self, caller: Caller, key: ApiKey) -> ApiKey:
        with self.database.write() as connection:
            return keys.revoke(connection, caller, key.id)


@pytest.fixture
def world(database: Database) -> World:
    with database.write() as connection:
        team = teams.create(connection, server_owner(), name="a")
        owner = server_owner().within(team.id)
        first, second = (projects.create(connection, owner, name=name).id for name in ("one", "two"))
    return World(database, owner, first, second)


def test_a_key_without_keys_write_makes_none(world: World):
    """Making keys is a right of its own."""
    with pytest.raises(Forbidden):
        world.make(world.holder(scopes=(MEMORIES_READ,)))


@pytest.mark.parametrize("scope", [MEMORIES_WRITE, TEAM_ADMIN, EVERYTHING, SERVER_ADMIN])
def test_no_key_gets_a_scope_that_its_maker_lacks(world: World, scope: str):
    """A reader makes readers."""
    with pytest.raises(Forbidden):
        world.make(world.holder(scopes=READER), scopes=(scope,))


def test_a_star_of_a_team_does_not_administer_the_server(world: World):
    """`*` ends at the wall of its team."""
    with pytest.raises(Forbidden):
        world.make(world.holder(scopes=(EVERYTHING,)), scopes=(SERVER_ADMIN,))


def test_an_unknown_scope_is_refused(world: World):
    """A misspelt scope is an error and not a scope that allows nothing."""
    with pytest.raises(Invalid):
        world.make(world.owner, scopes=("memories:reed",))


def test_a_project_key_makes_keys_of_its_project_only(world: World):
    """Another project of the same team is wider."""
    with pytest.raises(Forbidden):
        world.make(world.holder(scopes=READER, project_id=world.project_id), project_id=world.other_project_id)


def test_a_project_key_makes_no_team_keys(world: World):
    """What is left out is the maker's own, never the team."""
    made = world.make(world.holder(scopes=READER, project_id=world.project_id))

    assert made.project_id == world.project_id


def test_the_project_of_another_team_is_no_project(world: World, database: Database):
    """A foreign project reads like none at all."""
    with database.write() as connection:
        stranger = server_owner().within(teams.create(connection, server_owner(), name="b").id)
        foreign = projects.create(connection, stranger, name="theirs").id

    with pytest.raises(Forbidden):
        world.make(world.owner, project_id=foreign)


def test_a_member_makes_no_keys_of_others(world: World):
    """Whose a key is stays within the maker's own."""
    ann, bob = world.member("ann", "admin"), world.member("bob", "viewer")

    with pytest.raises(Forbidden):
        world.make(world.holder(scopes=READER, user_id=ann), user_id=bob)


def test_a_member_makes_no_keys_of_nobody(world: World):
    """What is left out is the maker himself: his keys end when he leaves."""
    ann = world.member("ann", "admin")

    assert world.make(world.holder(scopes=READER, user_id=ann)).user_id == ann


def test_a_key_is_for_members_of_its_team_only(world: World):
    """An unknown user is not found."""
    with pytest.raises(NotFound):
        world.make(world.owner, user_id="nobody")


def test_a_role_cuts_the_scopes_of_a_key(world: World):
    """The scopes may be wider than the role; what counts is what both allow."""
    viewer = world.holder(scopes=(EVERYTHING,), user_id=world.member("vic", "viewer"))

    assert viewer.scopes == {MEMORIES_READ}


def test_an_administering_key_gets_no_member_whose_role_may_rise_above_its_maker(world: World):
    """A key of an owner would act as an owner in the hands of whoever made it, today or after a promotion."""
    admin = world.holder(scopes=(TEAM_ADMIN, KEYS_WRITE))

    for user_id in (world.member("olga", "owner"), world.member("vic", "viewer")):
        with pytest.raises(Forbidden):
            world.make(admin, scopes=(TEAM_ADMIN,), user_id=user_id)


def test_a_key_does_not_outlive_its_maker(world: World):
    """A longer life is refused."""
    with pytest.raises(Forbidden):
        world.make(world.holder(scopes=READER, expires_in_days=10), expires_in_days=11)


def test_a_key_without_a_term_ends_with_its_maker(world: World):
    """A key that expires makes none that does not."""
    maker = world.holder(scopes=READER, expires_in_days=10)

    assert world.make(maker).expires_at_epoch == maker.expires_at_epoch


def test_a_token_makes_no_keys(world: World):
    """Otherwise a token would outlive itself."""
    token = replace(world.holder(scopes=READER), by_token=True)

    with pytest.raises(Forbidden):
        world.make(token)


def test_a_token_rotates_no_keys(world: World):
    """A rotation is a new key too."""
    key = world.make(world.owner, scopes=READER)

    with pytest.raises(Forbidden):
        world.rotate(replace(world.acting(key), by_token=True), key)


Act = Callable[[World, Caller, ApiKey], ApiKey]
ROTATE: Act = lambda world, caller, key: world.rotate(caller, key)  # noqa: E731
RENAME: Act = lambda world, caller, key: world.change(caller, key, name="mine")  # noqa: E731
REVOKE: Act = lambda world, caller, key: world.revoke(caller, key)  # noqa: E731


@pytest.mark.parametrize("act", [ROTATE, RENAME, REVOKE])
@pytest.mark.parametrize("scopes", [(EVERYTHING,), (MEMORIES_READ, MEMORIES_WRITE), (TEAM_ADMIN,)])
def test_a_stronger_key_is_out_of_reach(world: World, act: Act, scopes: tuple[str, ...]):
    """Whoever rotates a key holds its new secret; whoever changes one locks its owner out."""
    stronger = world.make(world.owner, scopes=scopes)

    with pytest.raises(Forbidden):
        act(world, world.holder(scopes=READER), stronger)


@pytest.mark.parametrize("act", [ROTATE, RENAME])
def test_a_key_of_the_whole_team_is_out_of_a_project_keys_sight(world: World, act: Act):
    """To a project key, there are the keys of its project."""
    of_team = world.make(world.owner)

    with pytest.raises(NotFound):
        act(world, world.holder(scopes=READER, project_id=world.project_id), of_team)


@pytest.mark.parametrize("act", [ROTATE, RENAME])
def test_a_key_that_lives_longer_is_out_of_reach(world: World, act: Act):
    """The new secret would outlive the one who made it."""
    unending = world.make(world.owner)

    with pytest.raises(Forbidden):
        act(world, world.holder(scopes=READER, expires_in_days=1), unending)


@pytest.mark.parametrize("act", [ROTATE, RENAME])
def test_a_members_key_does_not_touch_those_of_others(world: World, act: Act):
    """Another member's key is another member."""
    ann, bob = world.member("ann", "admin"), world.member("bob", "viewer")

    with pytest.raises(Forbidden):
        act(world, world.holder(scopes=READER, user_id=ann), world.make(world.owner, user_id=bob))


def test_a_leaked_key_is_revoked_whoever_it_belongs_to(world: World):
    """An admin stops a weaker key though it is another's and lives longer: revoking makes nothing wider."""
    ann, bob = world.member("ann", "admin"), world.member("bob", "viewer")
    leaked = world.make(world.owner, user_id=bob)

    revoked = world.revoke(world.holder(scopes=READER, user_id=ann, expires_in_days=1), leaked)

    assert revoked.revoked_at_epoch is not None


def test_an_admin_does_not_revoke_an_owners_key(world: World):
    """Nobody takes power from above himself."""
    ann, olga = world.member("ann", "admin"), world.member("olga", "owner")
    of_owner = world.make(world.owner, scopes=(TEAM_ADMIN,), user_id=olga)

    with pytest.raises(Forbidden):
        world.revoke(world.holder(scopes=(EVERYTHING,), user_id=ann), of_owner)


def test_a_key_rotates_itself(world: World):
    """The holder of a key may always exchange it for one that is just like it."""
    ann = world.member("ann", "admin")
    key = world.make(world.owner, scopes=(EVERYTHING,), user_id=ann, project_id=world.project_id, expires_in_days=5)

    rotated = world.rotate(world.acting(key), key)

    same = ("team_id", "project_id", "user_id", "scopes", "expires_at_epoch", "name", "label")
    assert [getattr(rotated, name) for name in same] == [getattr(key, name) for name in same]
    assert rotated.rotated_from == key.id


def stored(world: World, key: ApiKey) -> ApiKey:
    with world.database.read() as connection:
        return keys.get(connection, world.owner, key.id)


def test_an_overlap_ends_when_it_was_said_to(world: World):
    """Until then both keys are in force."""
    key, before = world.make(world.owner), now_ms()

    world.rotate(world.owner, key, overlap_seconds=60)

    ends = stored(world, key).revoked_at_epoch
    assert ends is not None
    assert before + 60_000 <= ends <= now_ms() + 60_000


def test_a_key_is_rotated_once(world: World):
    """In its overlap a key has a successor already."""
    key = world.make(world.owner)
    world.rotate(world.owner, key, overlap_seconds=60)

    with pytest.raises(Conflict):
        world.rotate(world.owner, key)


def test_what_is_over_is_not_rotated(world: World):
    """A revoked or expired key does not come back under another name."""
    revoked, expired = world.make(world.owner), world.make(world.owner, expires_in_days=1)
    world.revoke(world.owner, revoked)
    with world.database.write() as connection:
        connection.execute(update(api_keys).where(api_keys.c.id == expired.id).values(expires_at_epoch=now_ms() - 1))

    for key in (revoked, expired):
        with pytest.raises(Conflict):
            world.rotate(world.owner, key)


def test_revoking_again_changes_nothing(world: World):
    """The first revocation stands."""
    key = world.make(world.owner)
    first = world.revoke(world.owner, key)

    assert world.revoke(world.owner, key).revoked_at_epoch == first.revoked_at_epoch


def test_revoking_ends_an_overlap(world: World):
    """A leaked key does not wait for its overlap."""
    key = world.make(world.owner)
    world.rotate(world.owner, key, overlap_seconds=3600)

    assert (world.revoke(world.owner, key).revoked_at_epoch or 0) <= now_ms()


def test_a_key_is_renamed_and_narrowed(world: World):
    """Fewer scopes, one project, an earlier end."""
    key = world.make(world.owner, scopes=(MEMORIES_READ, MEMORIES_WRITE))

    narrowed = world.change(
        world.owner, key, name="ci", scopes=[MEMORIES_READ], project_id=world.project_id, expires_in_days=1
    )

    assert (narrowed.name, narrowed.scopes, narrowed.project_id) == ("ci", [MEMORIES_READ], world.project_id)
    assert stored(world, key) == narrowed


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
def test_not_even_the_owner_widens_a_key(world: World, wider: dict[str, object]):
    """Who was told what a key may do can rely on it; a wider one is another key."""
    key = world.make(world.owner, project_id=world.project_id, expires_in_days=2)

    with pytest.raises(Forbidden):
        world.change(world.owner, key, **wider)


def test_a_key_is_not_moved_to_another_project(world: World):
    """Another project is not a part of the first."""
    key = world.make(world.owner, project_id=world.project_id)

    with pytest.raises(Forbidden):
        world.change(world.owner, key, project_id=world.other_project_id)


def test_a_star_of_a_team_narrows_to_any_scope_of_it(world: World):
    """`*` holds every scope of the team."""
    key = world.make(world.owner, scopes=(EVERYTHING,))

    assert world.change(world.owner, key, scopes=[TEAM_ADMIN]).scopes == [TEAM_ADMIN]


def test_keys_that_need_a_look_say_so(world: World):
    """Ninety days without use, or seven to live, is a state of its own."""
    key, now = world.make(world.owner), now_ms()
    seen = [
        replaced(key),
        replaced(key, revoked_at_epoch=now - 1),
        replaced(key, revoked_at_epoch=now + 60_000),
        replaced(key, expires_at_epoch=now - 1),
        replaced(key, expires_at_epoch=now + 6 * DAY_MS),
        replaced(key, created_at_epoch=now - 91 * DAY_MS),
        replaced(key, created_at_epoch=now - 91 * DAY_MS, last_used_at_epoch=now - DAY_MS),
    ]

    states = ["active", "revoked", "active", "expired", "expires soon", "unused", "active"]
    assert [keys.state(key) for key in seen] == states


def replaced(key: ApiKey, **fields: object) -> ApiKey:
    values = {name: getattr(key, name) for name in ApiKey.__struct_fields__}
    return ApiKey(**{**values, **fields})


def test_stamps_and_renewed_hashes_touch_nothing_else(world: World):
    """A stamp is one column; a hash that has changed meanwhile is left alone."""
    key = world.make(world.owner)

    with world.database.write() as connection:
        keys.stamp_used(connection, {key.id: 17})
        keys.replace_hash(connection, key.id, outdated=HASH, renewed="new")
        keys.replace_hash(connection, key.id, outdated=HASH, renewed="late")

    assert stored(world, key) == replaced(key, last_used_at_epoch=17)
    with world.database.read() as connection:
        found = keys.find_by_id(connection, key.id)
    assert found is not None
    assert found.secret_hash == "new"
