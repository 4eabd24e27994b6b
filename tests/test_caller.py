"""What a caller may do: by scope, project and role."""

import itertools

import pytest

from app import caller
from app.caller import EVERYTHING, MEMORIES_READ, SERVER_ADMIN, TEAM_ADMIN, Caller, server_owner
from app.errors import Forbidden


def test_wildcard_of_a_team_is_not_the_servers():
    """Without a team it includes everything; inside one, everything but server:admin."""
    owner = server_owner()

    assert owner.may(SERVER_ADMIN)
    assert [scope for scope in caller.ALL_SCOPES if not owner.within("team").may(scope)] == [SERVER_ADMIN]


def test_missing_scope_is_named():
    """So that the person who made the key knows what to add."""
    with pytest.raises(Forbidden, match="requires the scope memories:write"):
        Caller("team", scopes=frozenset({MEMORIES_READ})).require(caller.MEMORIES_WRITE)


def test_project_caller_is_confined_to_its_project():
    """It may act neither on another project nor on the whole team."""
    bound = Caller("team", project_id="mine", scopes=frozenset({EVERYTHING}))

    bound.require_project("mine")
    for refused in (lambda: bound.require_project("other"), bound.require_whole_team):
        with pytest.raises(Forbidden):
            refused()


def test_team_caller_may_act_on_any_project_of_its_team():
    """Whether the project belongs to the team is checked where it is read."""
    whole = Caller("team")

    whole.require_project("any")
    whole.require_whole_team()


@pytest.mark.parametrize(
    ("holder", "rank"),
    [
        (Caller("team", scopes=frozenset({EVERYTHING})), "owner"),
        (Caller("team", scopes=frozenset({TEAM_ADMIN})), "admin"),
        (Caller("team", role="viewer", scopes=frozenset({EVERYTHING})), "viewer"),
    ],
)
def test_role_of_the_member_decides_the_rank_before_the_scopes_do(holder: Caller, rank: caller.Role):
    """A key without a member ranks by its scopes."""
    assert holder.rank == caller.RANKS[rank]


def test_caller_without_role_or_admin_scope_ranks_below_a_viewer():
    """It may manage nobody."""
    assert Caller("team", scopes=frozenset({MEMORIES_READ})).rank < caller.RANKS["viewer"]


def test_each_role_includes_the_scopes_of_the_one_below():
    """A promotion takes nothing away."""
    roles = sorted(caller.RANKS, key=caller.RANKS.__getitem__)

    for lower, higher in itertools.pairwise(roles):
        assert caller.ROLE_SCOPES[lower] <= caller.ROLE_SCOPES[higher]
    assert SERVER_ADMIN not in caller.ROLE_SCOPES[roles[-1]]
