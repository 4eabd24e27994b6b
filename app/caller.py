"""Caller: who makes a request, for which team and project, with which scopes. A frozen value and a leaf."""

from dataclasses import dataclass, replace
from typing import Final, Literal

from app.errors import Forbidden

Role = Literal["viewer", "member", "admin", "owner"]

MEMORIES_READ: Final = "memories:read"
MEMORIES_WRITE: Final = "memories:write"
KEYS_WRITE: Final = "keys:write"
AUDIT_READ: Final = "audit:read"
TEAM_ADMIN: Final = "team:admin"
SERVER_ADMIN: Final = "server:admin"
EVERYTHING: Final = "*"

TEAM_SCOPES: Final = frozenset({MEMORIES_READ, MEMORIES_WRITE, KEYS_WRITE, AUDIT_READ, TEAM_ADMIN})
ALL_SCOPES: Final = TEAM_SCOPES | {SERVER_ADMIN, EVERYTHING}

ROLE_SCOPES: Final[dict[Role, frozenset[str]]] = {
    "viewer": frozenset({MEMORIES_READ}),
    "member": frozenset({MEMORIES_READ, MEMORIES_WRITE}),
    "admin": TEAM_SCOPES,
    "owner": TEAM_SCOPES,
}
"""What a role allows within its team; the scopes of a member's keys are cut down to it."""

RANKS: Final[dict[Role, int]] = {"viewer": 0, "member": 1, "admin": 2, "owner": 3}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request. `team_id` None is the server itself: it can see teams and state, but no memories.

    `project_id` None means the whole team. `scopes` are already cut down to the member's role and to the token.
    """

    team_id: str | None
    project_id: str | None = None
    key_id: str | None = None
    user_id: str | None = None
    role: Role | None = None
    scopes: frozenset[str] = frozenset()
    expires_at_epoch: int | None = None
    by_token: bool = False
    request_id: str | None = None

    def may(self, scope: str) -> bool:
        """Say whether the caller has `scope`; `*` includes all scopes of a team, and without a team really all."""
        if scope in self.scopes:
            return True
        return EVERYTHING in self.scopes and (scope != SERVER_ADMIN or self.team_id is None)

    def require(self, scope: str) -> None:
        """Raise Forbidden unless the caller has `scope`."""
        if not self.may(scope):
            raise Forbidden(f"This requires the scope {scope}.")

    def require_project(self, project_id: str) -> None:
        """Raise Forbidden when the credential is bound to a project other than this one."""
        if self.project_id is not None and project_id != self.project_id:
            raise Forbidden("The projectId is outside what this credential may use.")

    def require_whole_team(self) -> None:
        """Raise Forbidden when the credential is bound to a project, and so must not affect the whole team."""
        if self.project_id is not None:
            raise Forbidden("This credential is bound to a project and cannot act on the whole team.")

    @property
    def rank(self) -> int:
        """The rank of the caller's role; without a member, `*` ranks as owner and team:admin as admin."""
        if self.role is not None:
            return RANKS[self.role]
        if EVERYTHING in self.scopes:
            return RANKS["owner"]
        return RANKS["admin"] if TEAM_ADMIN in self.scopes else -1

    def within(self, team_id: str) -> "Caller":
        """Return this caller acting inside a team: for commands of the server's owner."""
        return replace(self, team_id=team_id)


def server_owner(request_id: str | None = None) -> Caller:
    """Return the caller of the admin commands: anyone who can open the database may do everything."""
    return Caller(team_id=None, scopes=frozenset({EVERYTHING}), request_id=request_id)
