"""/v1/memories/{memoryId}: what a PATCH changes, what it keeps, and when it is refused."""

from typing import Any

import pytest

from tests.api.saving import FIELDS, patch_memory, start_session, store_memory
from tests.conftest import Tenant
from tests.problems import code_of


def test_patch_changes_only_the_fields_that_are_sent(team: Tenant):
    """An absent key keeps its value; an array or object replaces the old one."""
    before = store_memory(team, **FIELDS)
    changes = {"title": "new", "facts": ["one", "two"], "metadata": {"b": 2}, "pinned": False, "kind": "summary"}

    after = patch_memory(team, before, **changes).json()["memory"]

    moved = {"contentHash", "updatedAtEpoch"}
    assert {name: value for name, value in after.items() if name not in moved} == {
        name: value for name, value in {**before, **changes}.items() if name not in moved
    }
    assert after["updatedAtEpoch"] >= before["updatedAtEpoch"]


@pytest.mark.parametrize(
    ("name", "cleared"),
    [
        ("title", None),
        ("subtitle", None),
        ("text", None),
        ("narrative", None),
        ("content", None),
        ("type", "observation"),
        ("facts", []),
        ("concepts", []),
        ("filesRead", []),
        ("filesModified", []),
        ("metadata", {}),
        ("pinned", False),
        ("platformSource", "claude"),
        ("legacyObservationId", None),
        ("serverSessionId", None),
        ("supersededBy", None),
    ],
)
def test_null_clears_a_field(team: Tenant, name: str, cleared: Any):
    """To null, to the empty value, or to the default."""
    memory = store_memory(team, **FIELDS)

    after = patch_memory(team, memory, **{name: None}).json()["memory"]

    assert after["narrative" if name == "content" else name] == cleared


@pytest.mark.parametrize("name", ["id", "projectId", "createdAtEpoch", "contentHash", "teamId", "unheard"])
def test_immutable_fields_are_refused(team: Tenant, name: str):
    """Identity, project, creation time and hash of a memory cannot be changed."""
    memory = store_memory(team, content="x")

    assert code_of(patch_memory(team, memory, **{name: memory.get(name, "x")})) == (400, "ValidationError")


def test_an_empty_patch_changes_nothing(team: Tenant):
    """Neither the memory nor its version changes."""
    memory = store_memory(team, content="x")
    before = team.http.get(f"/v1/memories/{memory['id']}")

    after = patch_memory(team, memory)

    assert (after.json(), after.headers["ETag"]) == (before.json(), before.headers["ETag"])


@pytest.mark.parametrize("is_in_a_session", [False, True])
def test_a_patch_that_would_make_two_rows_equal_is_refused(team: Tenant, is_in_a_session: bool):
    """No two memories of one project, session and kind have the same content."""
    place = {"serverSessionId": start_session(team)} if is_in_a_session else {}
    store_memory(team, content="first", **place)
    second = store_memory(team, content="second", **place)

    refused = patch_memory(team, second, content="first")

    assert code_of(refused) == (409, "Conflict")
    assert "already has this content" in refused.json()["message"]
    assert team.http.get(f"/v1/memories/{second['id']}").json()["memory"] == second


def test_a_patch_that_would_leave_nothing_searchable_is_refused(team: Tenant):
    """A memory keeps at least one word."""
    memory = store_memory(team, content="x")

    assert code_of(patch_memory(team, memory, content=None)) == (400, "ValidationError")


def test_a_patched_memory_is_found_by_its_new_words_only(team: Tenant):
    """The full-text index follows a change immediately."""
    memory = store_memory(team, content="lighthouse")
    patch_memory(team, memory, content="windmill")

    def hits(word: str) -> int:
        reply = team.http.post("/v1/search", json={"projectId": team.project_id, "query": word})
        return len(reply.json()["memories"])

    assert (hits("windmill"), hits("lighthouse")) == (1, 0)


@pytest.mark.parametrize("verb", ["PATCH", "DELETE"])
def test_an_outdated_etag_is_refused(team: Tenant, verb: str):
    """`If-Match` with an older version is 412 and changes nothing."""
    memory = store_memory(team, content="x")
    path = f"/v1/memories/{memory['id']}"
    old = team.http.get(path).headers["ETag"]
    now = patch_memory(team, memory, title="first").headers["ETag"]

    lost = team.http.request(verb, path, json={"title": "second"}, headers={"If-Match": old})

    assert code_of(lost) == (412, "PreconditionFailed")
    assert (team.http.get(path).json()["memory"]["title"], team.http.get(path).headers["ETag"]) == ("first", now)


@pytest.mark.parametrize("header", ["{now}", "*", '"other", {now}'])
@pytest.mark.parametrize("verb", ["PATCH", "DELETE"])
def test_the_current_etag_is_accepted(team: Tenant, verb: str, header: str):
    """`If-Match` takes the current version, a list with it, or `*`."""
    memory = store_memory(team, content="x")
    path = f"/v1/memories/{memory['id']}"
    now = team.http.get(path).headers["ETag"]

    won = team.http.request(verb, path, json={"title": "second"}, headers={"If-Match": header.format(now=now)})

    assert won.status_code == 200


def test_a_memory_can_be_superseded_by_another(team: Tenant):
    """`supersededBy` is set, read, and cleared when the other memory is deleted."""
    old, new = store_memory(team, content="old"), store_memory(team, content="new")

    assert patch_memory(team, old, supersededBy=new["id"]).json()["memory"]["supersededBy"] == new["id"]
    team.http.delete(f"/v1/memories/{new['id']}")
    assert team.http.get(f"/v1/memories/{old['id']}").json()["memory"]["supersededBy"] is None


def test_a_memory_cannot_supersede_itself(team: Tenant):
    """It would not be a replacement."""
    memory = store_memory(team, content="x")

    assert code_of(patch_memory(team, memory, supersededBy=memory["id"])) == (400, "ValidationError")
