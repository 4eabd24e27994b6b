"""Tenant isolation, by random operations: whatever two teams do, neither ever observes the other."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from app.caller import Caller, server_owner
from app.errors import AppError, Forbidden, NotFound
from app.services.audit import entries
from app.services.audit.entries import AuditFilters
from app.services.identity import keys, members, teams
from app.services.identity.credentials import PresentedKey
from app.services.memories import memories
from app.services.memories.memories import NewMemory
from app.services.projects import events, projects, sessions
from app.services.projects.events import NewEvent
from app.services.projects.sessions import NewSession
from app.services.search.engine import SearchEngine
from app.services.search.query import SearchParams
from app.store.database import Database
from app.store.fulltext import dialects
from tests.databases import Databases

VOCABULARY = ("gateway", "timeout", "bank", "retry", "invoice", "ledger")
WORDS = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=4).map(" ".join)
PAGE: dict[str, Any] = {"limit": 200, "cursor": None}


@dataclass
class Side:
    """A team, and the ids of everything that it created."""

    caller: Caller
    ids: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in KINDS})


KINDS = ("project", "memory", "session", "event", "key", "member")


class TwoTeams(RuleBasedStateMachine):
    """Random operations of two teams on one database."""

    databases: ClassVar[Databases]
    made = Bundle("made")
    side = st.sampled_from([0, 1])

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.database = Database(self.databases.url(Path(self.folder.name)))
        self.engine = SearchEngine(dialects.of(self.database.dialect), recency_half_life_days=90)
        self.number = 0
        with self.database.write() as connection:
            owners = [server_owner().within(teams.create(connection, server_owner(), name="t").id) for _ in range(2)]
        self.sides = [Side(owner) for owner in owners]

    def teardown(self) -> None:
        self.database.close()
        self.folder.cleanup()

    def write(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        with self.database.write() as connection:
            return call(connection, *arguments, **named)

    def read(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        with self.database.read() as connection:
            return call(connection, *arguments, **named)

    def new_name(self) -> str:
        self.number += 1
        return f"n{self.number}"

    @rule(target=made, side=side)
    def make_project(self, side: int) -> tuple[int, str, str]:
        project = self.write(projects.create, self.sides[side].caller, name="shared name")
        return self.record(side, "project", project.id)

    def record(self, side: int, kind: str, resource_id: str) -> tuple[int, str, str]:
        self.sides[side].ids[kind].add(resource_id)
        return side, kind, resource_id

    def own_project(self, side: int) -> str:
        owned = self.sides[side].ids["project"]
        return min(owned) if owned else self.make_project(side)[2]

    @rule(target=made, side=side, words=WORDS)
    def write_memory(self, side: int, words: str) -> tuple[int, str, str]:
        new = NewMemory(project_id=self.own_project(side), kind="manual", type="manual", narrative=words)
        memory, _ = self.write(memories.add, self.sides[side].caller, new)
        return self.record(side, "memory", memory.id)

    @rule(target=made, side=side)
    def start_session(self, side: int) -> tuple[int, str, str]:
        start = NewSession(project_id=self.own_project(side), content_session_id="the same")
        session, _ = self.write(sessions.start, self.sides[side].caller, start)
        return self.record(side, "session", session.id)

    @rule(target=made, side=side)
    def send_event(self, side: int) -> tuple[int, str, str]:
        new = NewEvent(
            project_id=self.own_project(side),
            source_type="hook",
            event_type="tool",
            occurred_at_epoch=1,
            content_session_id="the same",
            source_event_id="the same",
        )
        event, _ = self.write(events.add, self.sides[side].caller, new)
        return self.record(side, "event", event.id)

    @rule(target=made, side=side)
    def make_key(self, side: int) -> tuple[int, str, str]:
        minted = PresentedKey(self.new_name(), "")
        key = self.write(keys.create, self.sides[side].caller, keys.NewKey(), minted, "never presented")
        return self.record(side, "key", key.id)

    @rule(target=made, side=side)
    def add_member(self, side: int) -> tuple[int, str, str]:
        member = self.write(members.add, self.sides[side].caller, user_id=self.new_name(), role="viewer")
        return self.record(side, "member", member.user_id)

    @rule(resource=made)
    def attempt_foreign_access(self, resource: tuple[int, str, str]) -> None:
        """Reading, changing or removing what the other team has is NotFound or Forbidden."""
        owner, kind, resource_id = resource
        stranger = self.sides[1 - owner].caller
        for attempt in ATTEMPTS[kind]:
            with pytest.raises((NotFound, Forbidden)):
                self.write(attempt, stranger, resource_id)

    @rule(resource=made)
    def remove_own(self, resource: tuple[int, str, str]) -> None:
        owner, kind, resource_id = resource
        side = self.sides[owner]
        if resource_id not in side.ids[kind] or kind not in REMOVALS:
            return
        try:
            self.write(REMOVALS[kind], side.caller, resource_id)
        except AppError:
            return
        side.ids[kind].discard(resource_id)
        if kind == "project":
            self.discard_cascaded(side)

    def discard_cascaded(self, side: Side) -> None:
        """Deleting a project deletes what is in it."""
        for kind, reader in (("memory", memories.get), ("session", sessions.get), ("event", events.get)):
            for resource_id in list(side.ids[kind]):
                try:
                    self.read(reader, side.caller, resource_id)
                except NotFound:
                    side.ids[kind].discard(resource_id)

    @rule(side=side, words=WORDS)
    def search(self, side: int, words: str) -> None:
        """All hits belong to the searching team."""
        project = self.own_project(side)
        results = self.engine.search(
            self.database, self.sides[side].caller, SearchParams(project_ids=(project,), query=words)
        )
        assert {hit.memory.id for hit in results.hits} <= self.sides[side].ids["memory"]

    @rule(side=side, words=WORDS)
    def search_foreign_project(self, side: int, words: str) -> None:
        """A search in the other team's project is Forbidden."""
        foreign = self.own_project(1 - side)
        with pytest.raises(Forbidden):
            self.engine.search(
                self.database, self.sides[side].caller, SearchParams(project_ids=(foreign,), query=words)
            )

    @invariant()
    def each_team_lists_exactly_its_own(self) -> None:
        for side in self.sides:
            listed = {
                "project": {row.id for row in self.read(projects.list_page, side.caller, **PAGE).rows},
                "session": {row.id for row in self.read(sessions.list_page, side.caller, project_id=None, **PAGE).rows},
                "key": {row.id for row in self.read(keys.list_page, side.caller, **PAGE).rows},
                "member": {row.user_id for row in self.read(members.list_page, side.caller, **PAGE).rows},
            }
            assert listed == {kind: side.ids[kind] for kind in listed}

    @invariant()
    def each_team_reads_its_own_audit_log(self) -> None:
        logs = [self.read(entries.list_page, side.caller, AuditFilters(), **PAGE).rows for side in self.sides]
        assert {entry.id for entry in logs[0]}.isdisjoint({entry.id for entry in logs[1]})
        for side, log in zip(self.sides, logs, strict=True):
            assert {entry.team_id for entry in log} == {side.caller.team_id}


def _revoke(connection: Any, caller: Caller, key_id: str) -> None:
    keys.revoke(connection, caller, key_id)


def _remove_memory(connection: Any, caller: Caller, memory_id: str) -> None:
    memories.remove(connection, caller, memory_id, precondition=lambda _: True)


ATTEMPTS: dict[str, tuple[Callable[..., Any], ...]] = {
    "project": (projects.get, projects.require, projects.remove),
    "memory": (memories.get, memories.sources, _remove_memory),
    "session": (sessions.get, sessions.end),
    "event": (events.get,),
    "key": (keys.get, _revoke),
    "member": (members.get, members.remove),
}
REMOVALS: dict[str, Callable[..., Any]] = {
    "project": projects.remove,
    "memory": _remove_memory,
    "member": members.remove,
}


def test_two_teams_never_observe_each_other(databases: Databases):
    """Each sees its own rows and nothing else."""
    TwoTeams.databases = databases
    run_state_machine_as_test(
        TwoTeams,
        settings=settings(
            max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
