"""Request bodies are strict: nothing is coerced, nothing unknown is ignored, nothing malformed is accepted."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.clock import new_id
from tests.conftest import Server, Tenant, make_tenant
from tests.problems import code_of

REJECTED = (400, "ValidationError")


@pytest.fixture(scope="module")
def team(server: Server) -> Iterator[Tenant]:
    """One tenant for the whole module: nothing here depends on stored data."""
    tenant = make_tenant(server, "bodies")
    yield tenant
    tenant.http.close()


def send(team: Tenant, content: Any, path: str = "/v1/memories", **headers: str) -> httpx.Response:
    """Send bytes or text unchanged."""
    sent = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return team.http.post(path, content=content, headers=sent)


def post_literal(team: Tenant, field: str, written: str) -> httpx.Response:
    """Store a memory with one field written literally."""
    return send(team, f'{{"projectId": "{team.project_id}", "content": "{new_id()}", "{field}": {written}}}')


def paths(reply: httpx.Response) -> list[str]:
    return [issue["path"] for issue in reply.json()["issues"]]


@pytest.mark.parametrize("written", ['"10"', "10.0", "1e1", "true", "-1", "9" * 19, "9" * 25, "9" * 5000])
@pytest.mark.parametrize("field", ["createdAtEpoch", "legacyObservationId"])
def test_value_of_an_integer_field_must_be_an_integer(team: Tenant, field: str, written: str):
    """`"10"`, `10.0`, `1e1` and `true` are not 10, and integers have bounds."""
    reply = post_literal(team, field, written)

    assert (code_of(reply), paths(reply)) == (REJECTED, [f"body.{field}"])


@pytest.mark.parametrize(
    ("field", "written"),
    [
        ("title", "7"),
        ("title", "true"),
        ("title", '["x"]'),
        ("pinned", "1"),
        ("pinned", '"true"'),
        ("pinned", "null"),
        ("facts", '"x"'),
        ("facts", "[7]"),
        ("facts", "[null]"),
        ("facts", "null"),
        ("metadata", "[]"),
        ("metadata", '"{}"'),
        ("kind", '"Manual"'),
        ("kind", "null"),
        ("type", '""'),
        ("projectId", "null"),
    ],
)
def test_value_of_the_wrong_type_is_rejected(team: Tenant, field: str, written: str):
    """Nothing is converted."""
    assert code_of(post_literal(team, field, written)) == REJECTED


def test_integer_is_accepted(team: Tenant):
    """10 is 10."""
    assert post_literal(team, "createdAtEpoch", "10").json()["memory"]["createdAtEpoch"] == 10


def test_null_counts_as_omitted_in_optional_fields(team: Tenant):
    """So clients may send empty fields as null."""
    names = """type serverSessionId legacyObservationId title subtitle text narrative metadata platformSource
        supersededBy createdAtEpoch"""
    body = {"projectId": team.project_id, "content": new_id(), **dict.fromkeys(names.split())}

    assert team.http.post("/v1/memories", json=body).status_code == 201


@pytest.mark.parametrize("path", ["/v1/memories", "/v1/projects", "/v1/search"])
def test_unknown_key_is_rejected_by_name(team: Tenant, path: str):
    """A misspelt field is never treated as omitted."""
    body = {"projectId": team.project_id, "content": "x", "name": "n", "query": "q"}
    allowed = {
        "/v1/memories": ("projectId", "content"),
        "/v1/projects": ("name",),
        "/v1/search": ("projectId", "query"),
    }

    reply = send(team, json.dumps({**{name: body[name] for name in allowed[path]}, "project_id": "x"}), path)

    assert (code_of(reply), paths(reply)) == (REJECTED, ["body.project_id"])


def test_missing_key_is_named(team: Tenant):
    """A required key has a path in the error."""
    reply = send(team, '{"content": "x"}')

    assert (code_of(reply), paths(reply)) == (REJECTED, ["body.projectId"])


def test_nested_error_is_named(team: Tenant):
    """The path leads through arrays."""
    reply = team.http.post("/v1/memories", json={"projectId": team.project_id, "facts": ["a", 7]})

    assert paths(reply) == ["body.facts[1]"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{}{}",
        b"[1,]",
        b"{'a': 1}",
        b"NaN",
        b"nul",
        b'{"a": 1e999}',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"a\nb"',
        b"\xef\xbb\xbf{}",
        b"[]",
        b"null",
        b"7",
        "{}".encode("utf-16"),
    ],
)
def test_body_must_be_a_json_object(team: Tenant, body: bytes):
    """Malformed JSON, another encoding, or another type of value is rejected."""
    assert code_of(send(team, body)) == REJECTED


@pytest.mark.parametrize(
    "written",
    [r'"\u0000"', r'"a\u0000b"', '"a\x00b"', r'"\ud83d"', r'"\udc80"', r'"\udc00\ud800"', r'"\\\u0000"', r'"\ud83d x"'],
)
@pytest.mark.parametrize("place", ['"title": {}', '"facts": [{}]', '"metadata": {{"a": {}}}', '"metadata": {{{}: 1}}'])
def test_nul_and_lone_surrogates_are_rejected(team: Tenant, place: str, written: str):
    """In values and in keys, however deep."""
    body = f'{{"projectId": "{team.project_id}", "content": "x", {place.format(written)}}}'

    assert code_of(send(team, body.encode())) == REJECTED


@pytest.mark.parametrize(
    "text", [r"\u0000 written out", "👩‍👩‍👧", "é", "日本", "\u200b", "\x7f", "a\u0301", "\U0010ffff"]
)
def test_any_other_text_is_returned_unchanged(team: Tenant, text: str):
    """Escapes, joiners, combining and astral characters."""
    assert team.post_memory(content=f"x {text}").json()["memory"]["narrative"] == f"x {text}"


@pytest.mark.parametrize(("opening", "closing", "core"), [('{"a":', "}", "{}"), ("[", "]", "[]")])
@pytest.mark.parametrize(("depth", "status"), [(31, 201), (32, 201), (33, 400), (100, 400), (100_000, 400)])
def test_body_may_be_nested_32_levels_deep(
    team: Tenant, opening: str, closing: str, core: str, depth: int, status: int
):
    """The body itself is the first level; the 33rd is rejected, whether it is an object or an array."""
    inner = depth - 3 if core == "[]" else depth - 2
    value = opening * inner + core + closing * inner
    metadata = f'{{"a": {value}}}' if core == "[]" else value

    reply = send(team, f'{{"projectId": "{team.project_id}", "content": "{new_id()}", "metadata": {metadata}}}')

    assert reply.status_code == status


def test_brackets_in_strings_are_not_nesting(team: Tenant):
    """Only structure counts."""
    assert team.post_memory(content='{[{["\\"' * 50).status_code == 201


def test_sibling_brackets_are_not_nesting(team: Tenant):
    """Depth counts, not the number of brackets."""
    assert team.post_memory(content=new_id(), metadata={"a": [[]] * 1000}).status_code == 201


def test_body_over_the_limit_is_rejected(team: Tenant):
    """More than 5 MiB is 413, whether the length was announced or not."""
    big = json.dumps({"projectId": team.project_id, "content": "x" * (5 * 1024 * 1024)}).encode()

    assert code_of(send(team, big)) == (413, "PayloadTooLarge")
    assert code_of(send(team, (big[at : at + 65_536] for at in range(0, len(big), 65_536)))) == (413, "PayloadTooLarge")


def test_body_within_the_limit_is_accepted(team: Tenant):
    """Just under 5 MiB of many texts."""
    items = [{"projectId": team.project_id, "content": f"{n} " + "x" * 999_000} for n in range(5)]
    body = json.dumps(items).encode()

    assert 4_900_000 < len(body) < 5 * 1024 * 1024
    assert send(team, body, "/v1/memories/batch").status_code == 201


def test_text_over_a_million_characters_is_rejected(team: Tenant):
    """The limit is in characters, not bytes; exactly a million are accepted."""
    assert team.post_memory(content="é" * 1_000_000).status_code == 201
    assert code_of(team.post_memory(content="é" * 1_000_001)) == REJECTED
    assert code_of(team.post_memory(facts=["x" * 1_000_001])) == REJECTED


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json; charset=utf-16", ""],
)
def test_body_of_another_media_type_is_rejected(team: Tenant, content_type: str):
    """JSON only, in UTF-8."""
    reply = send(team, '{"name": "n"}', "/v1/projects", content_type=content_type)

    assert code_of(reply) == (415, "UnsupportedMediaType")


def test_body_without_a_media_type_is_rejected(team: Tenant):
    """The type is not guessed."""
    request = team.http.build_request("POST", "/v1/projects", content=b'{"name": "n"}')
    request.headers.pop("content-type", None)

    assert code_of(team.http.send(request)) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=UTF-8"])
def test_media_type_is_case_insensitive(team: Tenant, content_type: str):
    """The charset parameter is accepted, too."""
    assert send(team, '{"name": "n"}', "/v1/projects", content_type=content_type).status_code == 201


@pytest.mark.parametrize("encoding", ["gzip", "identity", "br"])
def test_encoded_body_is_rejected(team: Tenant, encoding: str):
    """Whatever its Content-Encoding."""
    assert code_of(send(team, "{}", content_encoding=encoding)) == (415, "UnsupportedMediaType")


def test_media_type_is_checked_after_the_credential_and_before_the_body(team: Tenant):
    """401 comes before 415, and 415 before 400."""
    nobody = httpx.post(f"{team.http.base_url}/v1/memories", content=b"{", headers={"content-type": "text/plain"})

    assert nobody.status_code == 401
    assert send(team, "{", content_type="text/plain").status_code == 415


@pytest.mark.parametrize("body", ['{"kind": "%s"}', '{"%s": 1}', '{"title": 1, "%s": 1}'])
def test_error_is_short_and_echoes_no_value(team: Tenant, body: str):
    """However large the body, the reply describes the form, and not the input."""
    reply = send(team, body % ("secret" * 100_000))

    assert code_of(reply) == REJECTED
    assert len(reply.content) < 2_000
    assert "secretsecret" not in reply.text or body.startswith('{"%s')


def test_numbers_in_objects_are_returned_exactly(team: Tenant):
    """Large integers and floats in metadata are stored as they were sent."""
    written = '{"a": 123456789012345678901234567890, "b": 0.1, "c": 1e308, "d": -0.0}'
    stored = post_literal(team, "metadata", written).json()["memory"]["metadata"]

    assert stored == json.loads(written)
