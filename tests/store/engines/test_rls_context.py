"""Two teams do whatever they like, in any order: neither ever observes the other."""

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
from app.services.audit.entries import Filters
from app.services.identity import keys, members, teams
from app.services.identity.credentials import PresentedKey
from app.services.memories import memories
from app.services.memories.memories import NewMemory
from app.services.projects import events, projects, sessions
from app.services.projects.events import NewEvent
from app.services.projects.sessions import Start
from app.services.search.engine import Asked, Searching
from app.store.database import Database
from app.store.fulltext import dialects
from tests.stores import Stores

VOCABULARY = ("gateway", "timeout", "bank", "retry", "invoice", "ledger")
WORDS = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=4).map(" ".join)
PAGE: dict[str, Any] = {"limit": 200, "cursor": None}


@dataclass
class Side:
    """A team, and the ids of everything that it made."""

    caller: Caller
    ids: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in KINDS})


KINDS = ("project", "memory", "session", "event", "key", "member")


class TwoTeams(RuleBasedStateMachine):
    """Random operations of two teams on one database."""

    stores: ClassVar[Stores]
    made = Bundle("made")
    side = st.sampled_from([0, 1])

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.database = Database(self.stores.url(Path(self.folder.name)))
        self.searching = Searching(dialects.of(self.database.dialect), recency_half_life_days=90)
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

    def fresh(self) -> str:
        self.number += 1
        return f"n{self.number}"

    @rule(target=made, side=side)
    def make_project(self, side: int) -> tuple[int, str, str]:
        project = self.write(projects.create, self.sides[side].caller, name="shared name")
        return self.note(side, "project", project.id)

    def note(self, side: int, kind: str, thing: str) -> tuple[int, str, str]:
        self.sides[side].ids[kind].add(thing)
        return side, kind, thing

    def own_project(self, side: int) -> str:
        owned = self.sides[side].ids["project"]
        return min(owned) if owned else self.make_project(side)[2]

    @rule(target=made, side=side, words=WORDS)
    def write_memory(self, side: int, words: str) -> tuple[int, str, str]:
        new = NewMemory(project_id=self.own_project(side), kind="manual", type="manual", narrative=words)
        memory, _ = self.write(memories.add, self.sides[side].caller, new)
        return self.note(side, "memory", memory.id)

    @rule(target=made, side=side)
    def start_session(self, side: int) -> tuple[int, str, str]:
        start = Start(project_id=self.own_project(side), content_session_id="the same")
        session, _ = self.write(sessions.start, self.sides[side].caller, start)
        return self.note(side, "session", session.id)

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
        return self.note(side, "event", event.id)

    @rule(target=made, side=side)
    def make_key(self, side: int) -> tuple[int, str, str]:
        minted = PresentedKey(self.fresh(), "")
        key = self.write(keys.create, self.sides[side].caller, keys.NewKey(), minted, "never presented")
        return self.note(side, "key", key.id)

    @rule(target=made, side=side)
    def add_member(self, side: int) -> tuple[int, str, str]:
        member = self.write(members.add, self.sides[side].caller, user_id=self.fresh(), role="viewer")
        return self.note(side, "member", member.user_id)

    @rule(thing=made)
    def reach_for_what_others_have(self, thing: tuple[int, str, str]) -> None:
        """Reading, changing or removing it: not found, or outside what the credential may use."""
        owner, kind, thing_id = thing
        stranger = self.sides[1 - owner].caller
        for attempt in ATTEMPTS[kind]:
            with pytest.raises((NotFound, Forbidden)):
                self.write(attempt, stranger, thing_id)

    @rule(thing=made)
    def remove_what_is_ones_own(self, thing: tuple[int, str, str]) -> None:
        owner, kind, thing_id = thing
        side = self.sides[owner]
        if thing_id not in side.ids[kind] or kind not in REMOVALS:
            return
        try:
            self.write(REMOVALS[kind], side.caller, thing_id)
        except AppError:
            return
        side.ids[kind].discard(thing_id)
        if kind == "project":
            self.forget_lost(side)

    def forget_lost(self, side: Side) -> None:
        """A project takes what is in it along."""
        for kind, reader in (("memory", memories.get), ("session", sessions.get), ("event", events.get)):
            for thing_id in list(side.ids[kind]):
                try:
                    self.read(reader, side.caller, thing_id)
                except NotFound:
                    side.ids[kind].discard(thing_id)

    @rule(side=side, words=WORDS)
    def search(self, side: int, words: str) -> None:
        """Hits are one's own."""
        project = self.own_project(side)
        found = self.searching.search(
            self.database, self.sides[side].caller, Asked(project_ids=(project,), query=words)
        )
        assert {hit.memory.id for hit in found.hits} <= self.sides[side].ids["memory"]

    @rule(side=side, words=WORDS)
    def search_what_others_have(self, side: int, words: str) -> None:
        """Another's project is no project."""
        foreign = self.own_project(1 - side)
        with pytest.raises(Forbidden):
            self.searching.search(self.database, self.sides[side].caller, Asked(project_ids=(foreign,), query=words))

    @invariant()
    def each_lists_exactly_its_own(self) -> None:
        for side in self.sides:
            listed = {
                "project": {row.id for row in self.read(projects.listing, side.caller, **PAGE).rows},
                "session": {row.id for row in self.read(sessions.listing, side.caller, project_id=None, **PAGE).rows},
                "key": {row.id for row in self.read(keys.listing, side.caller, **PAGE).rows},
                "member": {row.user_id for row in self.read(members.listing, side.caller, **PAGE).rows},
            }
            assert listed == {kind: side.ids[kind] for kind in listed}

    @invariant()
    def each_reads_its_own_log(self) -> None:
        logs = [self.read(entries.listing, side.caller, Filters(), **PAGE).rows for side in self.sides]
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


def test_two_teams_never_observe_each_other(stores: Stores):
    """Whatever both do, each sees its own and nothing else."""
    TwoTeams.stores = stores
    run_state_machine_as_test(
        TwoTeams,
        settings=settings(
            max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
