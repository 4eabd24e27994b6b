"""Creating keys: no key grants more than its creator has, in any respect."""

from dataclasses import replace

import pytest

from app.caller import (
    EVERYTHING,
    KEYS_WRITE,
    MEMORIES_READ,
    MEMORIES_WRITE,
    SERVER_ADMIN,
    TEAM_ADMIN,
    server_owner,
)
from app.errors import Forbidden, Invalid, NotFound
from app.services.identity import teams
from app.services.projects import projects
from app.store.database import Database
from tests.services.identity.team_with_keys import TeamWithKeys

READER = (MEMORIES_READ, KEYS_WRITE)


def test_key_without_keys_write_cannot_create_keys(team: TeamWithKeys):
    """Creating keys needs a scope of its own."""
    with pytest.raises(Forbidden):
        team.create(team.caller_with(scopes=(MEMORIES_READ,)))


@pytest.mark.parametrize("scope", [MEMORIES_WRITE, TEAM_ADMIN, EVERYTHING, SERVER_ADMIN])
def test_key_gets_no_scope_that_its_creator_lacks(team: TeamWithKeys, scope: str):
    """A reader can only create readers."""
    with pytest.raises(Forbidden):
        team.create(team.caller_with(scopes=READER), scopes=(scope,))


def test_team_wildcard_does_not_include_server_admin(team: TeamWithKeys):
    """`*` covers the scopes of its team only."""
    with pytest.raises(Forbidden):
        team.create(team.caller_with(scopes=(EVERYTHING,)), scopes=(SERVER_ADMIN,))


def test_unknown_scope_is_rejected(team: TeamWithKeys):
    """A misspelt scope is an error, not a scope that allows nothing."""
    with pytest.raises(Invalid):
        team.create(team.owner, scopes=("memories:reed",))


def test_project_key_creates_keys_of_its_project_only(team: TeamWithKeys):
    """Another project of the same team exceeds its access."""
    with pytest.raises(Forbidden):
        team.create(team.caller_with(scopes=READER, project_id=team.project_id), project_id=team.other_project_id)


def test_project_key_cannot_create_team_keys(team: TeamWithKeys):
    """The default project is the creator's own, never the whole team."""
    created = team.create(team.caller_with(scopes=READER, project_id=team.project_id))

    assert created.project_id == team.project_id


def test_project_of_another_team_is_rejected(team: TeamWithKeys, database: Database):
    """It is treated like one that does not exist."""
    with database.write() as connection:
        outsider = server_owner().within(teams.create(connection, server_owner(), name="b").id)
        foreign = projects.create(connection, outsider, name="theirs").id

    with pytest.raises(Forbidden):
        team.create(team.owner, project_id=foreign)


def test_member_cannot_create_keys_of_others(team: TeamWithKeys):
    """A member's key creates keys of the same member."""
    ann, bob = team.add_member("ann", "admin"), team.add_member("bob", "viewer")

    with pytest.raises(Forbidden):
        team.create(team.caller_with(scopes=READER, user_id=ann), user_id=bob)


def test_key_of_a_member_belongs_to_that_member_by_default(team: TeamWithKeys):
    """So it ends when the member leaves the team."""
    ann = team.add_member("ann", "admin")

    assert team.create(team.caller_with(scopes=READER, user_id=ann)).user_id == ann


def test_key_can_only_belong_to_members_of_its_team(team: TeamWithKeys):
    """For an unknown user the error is NotFound."""
    with pytest.raises(NotFound):
        team.create(team.owner, user_id="nobody")


def test_role_limits_the_scopes_of_a_key(team: TeamWithKeys):
    """The scopes may exceed the role; the intersection applies."""
    viewer = team.caller_with(scopes=(EVERYTHING,), user_id=team.add_member("vic", "viewer"))

    assert viewer.scopes == {MEMORIES_READ}


def test_admin_key_cannot_belong_to_a_member_whose_role_may_exceed_its_creators(team: TeamWithKeys):
    """Its creator could act as an owner with it, now or after a promotion of the member."""
    admin = team.caller_with(scopes=(TEAM_ADMIN, KEYS_WRITE))

    for user_id in (team.add_member("olga", "owner"), team.add_member("vic", "viewer")):
        with pytest.raises(Forbidden):
            team.create(admin, scopes=(TEAM_ADMIN,), user_id=user_id)


def test_key_does_not_outlive_its_creator(team: TeamWithKeys):
    """A later expiry is rejected."""
    with pytest.raises(Forbidden):
        team.create(team.caller_with(scopes=READER, expires_in_days=10), expires_in_days=11)


def test_key_expires_with_its_creator_by_default(team: TeamWithKeys):
    """A key that expires cannot create one that does not."""
    creator = team.caller_with(scopes=READER, expires_in_days=10)

    assert team.create(creator).expires_at_epoch == creator.expires_at_epoch


def test_token_cannot_create_keys(team: TeamWithKeys):
    """Otherwise its access would outlive its expiry."""
    token = replace(team.caller_with(scopes=READER), by_token=True)

    with pytest.raises(Forbidden):
        team.create(token)


def test_token_cannot_rotate_keys(team: TeamWithKeys):
    """A rotation creates a new key."""
    key = team.create(team.owner, scopes=READER)

    with pytest.raises(Forbidden):
        team.rotate(replace(team.caller_of(key), by_token=True), key)
