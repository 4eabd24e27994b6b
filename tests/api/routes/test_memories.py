"""/v1/memories: one memory over HTTP."""

import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from tests.api.saving import FIELDS, patch_memory, start_session, store_memory
from tests.conftest import Server, Tenant
from tests.problems import code_of

AsTeam = Callable[[str], Tenant]


def test_a_memory_that_was_written_can_be_read(team: Tenant):
    """A GET returns what a POST acknowledged."""
    memory = store_memory(team, title="T", narrative="hello")

    assert team.http.get(f"/v1/memories/{memory['id']}").json() == {"memory": memory}


def test_every_field_comes_back_as_it_was_sent(team: Tenant):
    """Nothing in a memory is lost, renamed or converted."""
    memory = store_memory(team, **FIELDS)

    assert {name: memory[name] for name in FIELDS} == FIELDS


def test_a_memory_has_the_documented_keys_and_no_others(team: Tenant):
    """Its keys are those of the contract, including its team."""
    documented = """id projectId serverSessionId legacyObservationId kind type title subtitle text narrative facts
        concepts filesRead filesModified metadata platformSource pinned supersededBy contentHash createdAtEpoch
        updatedAtEpoch content teamId"""

    assert set(store_memory(team, content="x")) == set(documented.split())


def test_the_location_header_leads_to_the_new_memory(team: Tenant):
    """`Location` leads to what was made."""
    reply = team.post_memory(content="x")

    assert team.http.get(reply.headers["Location"]).json()["memory"] == reply.json()["memory"]


def test_content_is_an_alias_of_narrative(team: Tenant):
    """What is sent as `content` is stored as `narrative`."""
    assert store_memory(team, content="hello")["narrative"] == "hello"


def test_different_content_and_narrative_are_refused(team: Tenant):
    """Two names of one field cannot have two values."""
    reply = team.post_memory(content="a", narrative="b")

    assert code_of(reply) == (400, "ValidationError")
    assert reply.json()["issues"][0]["path"] == "body.content"


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({"narrative": "n", "text": "t", "title": "h"}, "n"),
        ({"narrative": "", "text": "t", "title": "h"}, "t"),
        ({"text": "", "title": "h"}, "h"),
        ({"facts": ["f"]}, None),
    ],
)
def test_content_is_the_first_text_that_is_not_empty(team: Tenant, fields: dict[str, Any], content: str | None):
    """In replies `content` is narrative, else text, else title."""
    assert store_memory(team, **fields)["content"] == content


def test_the_type_defaults_to_the_kind(team: Tenant):
    """A memory without a type takes its kind."""
    assert store_memory(team, content="x", kind="summary")["type"] == "summary"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"content": ""},
        {"content": " \t\n"},
        {"title": "", "facts": [], "concepts": [" "]},
        {"filesRead": ["a.py"], "metadata": {"a": 1}},
    ],
)
def test_a_blank_memory_is_refused_and_not_stored(team: Tenant, fields: dict[str, Any]):
    """One of the searchable fields must hold a non-blank string."""
    assert code_of(team.post_memory(**fields)) == (400, "ValidationError")
    assert team.http.get("/v1/memories").json()["memories"] == []


@pytest.mark.parametrize("name", ["title", "subtitle", "text", "narrative", "facts", "concepts"])
def test_each_searchable_field_is_enough(team: Tenant, name: str):
    """Any one of them makes a memory."""
    assert team.post_memory(**{name: ["x"] if name in ("facts", "concepts") else "x"}).status_code == 201


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (None, "claude"),
        ("Claude Code", "claude"),
        ("openai-CODEX", "codex"),
        ("Cursor IDE", "cursor"),
        ("  My  Own Tool ", "my-own-tool"),
    ],
)
def test_platform_names_are_normalised(team: Tenant, sent: str | None, kept: str):
    """Known families have one name; others are trimmed and lower-cased, with hyphens for spaces."""
    assert store_memory(team, content="x", platformSource=sent)["platformSource"] == kept


def test_the_same_content_again_returns_the_existing_memory(team: Tenant):
    """A repeat answers 200 with the existing row, and says so."""
    first = team.post_memory(**FIELDS)
    again = team.post_memory(**{**FIELDS, "type": "feature", "createdAtEpoch": 1})

    assert (first.status_code, first.json()["deduplicated"]) == (201, False)
    assert (again.status_code, again.json()) == (200, {"memory": first.json()["memory"], "deduplicated": True})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"title": "ab", "narrative": "c"}, {"title": "a", "narrative": "bc"}),
        ({"title": "a\nb"}, {"title": "a", "subtitle": "b"}),
        ({"facts": ["ab"]}, {"facts": ["a", "b"]}),
        ({"facts": ["a"], "concepts": ["b"]}, {"facts": ["a", "b"]}),
        ({"facts": ["a"]}, {"concepts": ["a"]}),
        ({"text": "a"}, {"narrative": "a"}),
        ({"content": "a", "kind": "manual"}, {"content": "a", "kind": "summary"}),
        ({"content": "a"}, {"content": "a "}),
    ],
)
def test_different_contents_stay_different(team: Tenant, first: dict[str, Any], second: dict[str, Any]):
    """No concatenation of fields makes two memories equal."""
    assert [team.post_memory(**first).status_code, team.post_memory(**second).status_code] == [201, 201]


def test_composed_and_decomposed_characters_are_the_same_content(team: Tenant):
    """NFC and NFD are equal for deduplication; the text is stored as it was sent."""
    composed, decomposed = "café Å가", unicodedata.normalize("NFD", "café Å가")
    first = team.post_memory(content=decomposed)
    again = team.post_memory(content=composed)

    assert composed != decomposed
    assert (again.status_code, again.json()["memory"]) == (200, first.json()["memory"])
    assert first.json()["memory"]["narrative"] == decomposed


def test_the_same_content_in_another_project_or_session_is_another_memory(team: Tenant):
    """Duplicates are detected within one project and session."""
    other = team.http.post("/v1/projects", json={"name": "other"}).json()["project"]["id"]
    session = team.http.post(
        "/v1/sessions/start", json={"projectId": team.project_id, "externalSessionId": "s"}
    ).json()["session"]["id"]

    codes = [
        team.post_memory(content="same").status_code,
        team.post_memory(content="same", projectId=other).status_code,
        team.post_memory(content="same", serverSessionId=session).status_code,
        team.post_memory(content="same", serverSessionId=session).status_code,
    ]

    assert codes == [201, 201, 201, 200]


def test_a_deleted_memory_is_gone_from_every_route_and_can_be_stored_again(team: Tenant):
    """After the reply to a DELETE no route returns it, and the same content makes a new one."""
    memory = store_memory(team, content="lighthouse")
    path = f"/v1/memories/{memory['id']}"

    deleted = team.http.delete(path)

    assert (deleted.status_code, deleted.json()) == (200, {"deleted": True, "id": memory["id"]})
    gone = [
        team.http.get(path),
        team.http.get(f"{path}/sources"),
        team.http.patch(path, json={"title": "x"}),
        team.http.delete(path),
    ]
    assert [code_of(reply) for reply in gone] == [(404, "NotFound")] * 4
    assert team.http.get("/v1/memories").json()["memories"] == []
    found = team.http.post("/v1/search", json={"projectId": team.project_id, "query": "lighthouse"})
    assert found.json()["memories"] == []
    assert store_memory(team, content="lighthouse")["id"] != memory["id"]


def test_the_same_memory_posted_many_times_at_once_is_stored_once(team: Tenant):
    """One request creates it, the others find it."""
    with ThreadPoolExecutor(8) as clients:
        replies = list(clients.map(lambda _: team.post_memory(content="the same"), range(16)))

    assert sorted(reply.status_code for reply in replies) == [200] * 15 + [201]
    assert len({reply.json()["memory"]["id"] for reply in replies}) == 1


def test_concurrent_memories_of_one_session_all_get_their_context_text(team: Tenant, server: Server):
    """As if they had been stored one after the other."""
    session_id = start_session(team)
    with ThreadPoolExecutor(8) as clients:
        sent = clients.map(
            lambda number: team.post_memory(
                content=f"word{number}", serverSessionId=session_id, createdAtEpoch=1_000 + number
            ),
            range(16),
        )
        assert {reply.status_code for reply in sent} == {201}

    statement = text("SELECT neighbour_text FROM memory_items WHERE server_session_id = :id ORDER BY created_at_epoch")
    with server.database.read() as connection:
        context_texts = list(connection.execute(statement, {"id": session_id}).scalars())
    neighbours = [[n for n in (number - 1, number + 1) if 0 <= n < 16] for number in range(16)]
    assert context_texts == ["\n".join(f"word{n}" for n in adjacent) for adjacent in neighbours]


@pytest.mark.parametrize("name", ["serverSessionId", "supersededBy"])
def test_references_to_other_projects_look_missing(as_team: AsTeam, name: str):
    """A session or memory of another team or project, of an unusual form, or an unknown one: always the same 404."""
    team, stranger = as_team("a"), as_team("b")
    other = team.http.post("/v1/projects", json={"name": "other"}).json()["project"]["id"]

    def made(tenant: Tenant, project: str) -> str:
        if name == "supersededBy":
            return str(tenant.post_memory(content="x", projectId=project).json()["memory"]["id"])
        body = {"projectId": project, "externalSessionId": "s"}
        return str(tenant.http.post("/v1/sessions/start", json=body).json()["session"]["id"])

    wrong = [made(stranger, stranger.project_id), made(team, other), "0" * 36, "odd", "", "x" * 5000]
    replies = [team.post_memory(content="y", **{name: value}) for value in wrong]

    assert [code_of(reply) for reply in replies] == [(404, "NotFound")] * len(wrong)
    assert len({reply.json()["detail"] for reply in replies}) == 1
    memory = store_memory(team, content="z")
    assert [code_of(patch_memory(team, memory, **{name: value}))[0] for value in wrong] == [404] * len(wrong)


def test_a_project_out_of_reach_is_403_whether_it_exists_or_not(as_team: AsTeam):
    """A `projectId` of another team, an unknown one, or one of an unusual form gets the same answer."""
    wrong = [as_team("b").project_id, "0" * 36, "odd", "", "x" * 5000]
    replies = [as_team("a").post_memory(content="y", projectId=value) for value in wrong]

    assert [code_of(reply) for reply in replies] == [(403, "Forbidden")] * len(wrong)
    assert len({reply.json()["detail"] for reply in replies}) == 1


@pytest.mark.parametrize("suffix", ["", "/sources"])
def test_a_foreign_memory_looks_missing(as_team: AsTeam, suffix: str):
    """Another team's memory answers every method exactly like an unknown id."""
    foreign = store_memory(as_team("b"), content="x")["id"]
    http = as_team("a").http

    def seen(memory_id: str) -> list[Any]:
        path = f"/v1/memories/{memory_id}{suffix}"
        replies = [http.get(path)]
        if not suffix:
            replies += [http.patch(path, json={"title": "t"}), http.delete(path)]
        return [{**reply.json(), "instance": "", "requestId": "", "status": reply.status_code} for reply in replies]

    assert seen(foreign) == seen("0" * 36)
    assert {reply["error"] for reply in seen(foreign)} == {"NotFound"}


@pytest.mark.parametrize("memory_id", ["1", "ABC", "%00", "%ff", "..", "a b", "x" * 3000, "'; DROP TABLE memory_items"])
def test_an_id_of_an_unusual_form_is_unknown(team: Tenant, memory_id: str):
    """Ids are opaque to callers: none is malformed."""
    assert team.http.get(f"/v1/memories/{memory_id}").status_code == 404


def test_ids_are_uuids_of_version_7(team: Tenant):
    """Lower case, generated by the server, in order of creation."""
    ids = [store_memory(team, content=str(number))["id"] for number in range(3)]

    assert ids == sorted(ids)
    assert all(each[14] == "7" and each == each.lower() and len(each) == 36 for each in ids)


def test_a_memory_stored_over_the_api_has_no_sources(team: Tenant):
    """Only imports and conversations have sources."""
    memory = store_memory(team, content="x")

    assert team.http.get(f"/v1/memories/{memory['id']}/sources").json() == {"sources": []}


def test_damaged_json_in_a_row_degrades_to_an_empty_value(team: Tenant, server):
    """One damaged row breaks neither its own reply nor a list."""
    memory = store_memory(team, **FIELDS)
    with server.database.write() as connection:
        connection.execute(
            text("UPDATE memory_items SET metadata = '{broken', files_read = '7', concepts = '' WHERE id = :id"),
            {"id": memory["id"]},
        )

    read = team.http.get(f"/v1/memories/{memory['id']}").json()["memory"]
    listed = team.http.get("/v1/memories").json()["memories"]

    assert (read["metadata"], read["filesRead"], read["concepts"]) == ({}, [], [])
    assert [each["id"] for each in listed] == [memory["id"]]


def test_a_write_is_visible_to_the_next_read(team: Tenant):
    """After a 201 the row is there, on any connection."""
    with httpx.Client(base_url=team.http.base_url, headers=team.http.headers, trust_env=False) as other:
        for number in range(50):
            location = team.post_memory(content=f"n{number}").headers["Location"]
            assert other.get(location).status_code == 200
