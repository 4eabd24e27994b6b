"""Bodies are decoded strictly: nothing is coerced, nothing unknown is dropped, nothing malformed gets through."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.api.http import strict_json
from app.clock import new_id
from app.errors import Invalid
from tests.conftest import Server, Tenant, make_tenant
from tests.problems import code_of

REFUSED = (400, "ValidationError")


@pytest.fixture(scope="module")
def team(server: Server) -> Iterator[Tenant]:
    """One tenant for the whole module: nothing here depends on what is stored."""
    tenant = make_tenant(server, "bodies")
    yield tenant
    tenant.http.close()


def send(team: Tenant, content: Any, path: str = "/v1/memories", **headers: str) -> httpx.Response:
    """Send bytes or text as they are."""
    sent = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return team.http.post(path, content=content, headers=sent)


def literal(team: Tenant, field: str, written: str) -> httpx.Response:
    """Send a memory with one field written literally."""
    return send(team, f'{{"projectId": "{team.project_id}", "content": "{new_id()}", "{field}": {written}}}')


def paths(reply: httpx.Response) -> list[str]:
    return [issue["path"] for issue in reply.json()["issues"]]


@pytest.mark.parametrize("written", ['"10"', "10.0", "1e1", "true", "-1", "9" * 19, "9" * 25, "9" * 5000])
@pytest.mark.parametrize("field", ["createdAtEpoch", "legacyObservationId"])
def test_nothing_else_is_an_integer(team: Tenant, field: str, written: str):
    """`"10"`, `10.0`, `1e1` and `true` are not 10, and integers have bounds."""
    reply = literal(team, field, written)

    assert (code_of(reply), paths(reply)) == (REFUSED, [f"body.{field}"])


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
def test_a_value_of_another_type_is_refused(team: Tenant, field: str, written: str):
    """The field is named, the value is not echoed."""
    assert code_of(literal(team, field, written)) == REFUSED


def test_an_integer_that_is_one_is_taken(team: Tenant):
    """10 is 10."""
    assert literal(team, "createdAtEpoch", "10").json()["memory"]["createdAtEpoch"] == 10


def test_null_is_nothing_for_whatever_may_be_left_out(team: Tenant):
    """A client that writes its empty fields as null is understood."""
    names = """type serverSessionId legacyObservationId title subtitle text narrative metadata platformSource
        supersededBy createdAtEpoch"""
    body = {"projectId": team.project_id, "content": new_id(), **dict.fromkeys(names.split())}

    assert team.http.post("/v1/memories", json=body).status_code == 201


@pytest.mark.parametrize("path", ["/v1/memories", "/v1/projects", "/v1/search"])
def test_an_unknown_key_is_refused_by_name(team: Tenant, path: str):
    """A misspelt field never means that it was left out."""
    body = {"projectId": team.project_id, "content": "x", "name": "n", "query": "q"}
    allowed = {
        "/v1/memories": ("projectId", "content"),
        "/v1/projects": ("name",),
        "/v1/search": ("projectId", "query"),
    }

    reply = send(team, json.dumps({**{name: body[name] for name in allowed[path]}, "project_id": "x"}), path)

    assert (code_of(reply), paths(reply)) == (REFUSED, ["body.project_id"])


def test_a_missing_key_is_named(team: Tenant):
    """What must be there and is not has a path."""
    reply = send(team, '{"content": "x"}')

    assert (code_of(reply), paths(reply)) == (REFUSED, ["body.projectId"])


def test_a_fault_deep_inside_is_named(team: Tenant):
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
def test_what_is_not_a_json_object_is_refused(team: Tenant, body: bytes):
    """Malformed JSON, another encoding, and another kind of value."""
    assert code_of(send(team, body)) == REFUSED


@pytest.mark.parametrize(
    "written",
    [r'"\u0000"', r'"a\u0000b"', '"a\x00b"', r'"\ud83d"', r'"\udc80"', r'"\udc00\ud800"', r'"\\\u0000"', r'"\ud83d x"'],
)
@pytest.mark.parametrize("place", ['"title": {}', '"facts": [{}]', '"metadata": {{"a": {}}}', '"metadata": {{{}: 1}}'])
def test_text_that_is_no_text_is_refused(team: Tenant, place: str, written: str):
    """NUL and lone surrogates, in values and in keys, however deep."""
    body = f'{{"projectId": "{team.project_id}", "content": "x", {place.format(written)}}}'

    assert code_of(send(team, body.encode())) == REFUSED


@pytest.mark.parametrize(
    "text", [r"\u0000 written out", "👩‍👩‍👧", "é", "日本", "\u200b", "\x7f", "a\u0301", "\U0010ffff"]
)
def test_every_other_text_comes_back_as_it_was_sent(team: Tenant, text: str):
    """Escapes, joiners, combining and astral characters."""
    assert team.post_memory(content=f"x {text}").json()["memory"]["narrative"] == f"x {text}"


@pytest.mark.parametrize(("opening", "closing", "core"), [('{"a":', "}", "{}"), ("[", "]", "[]")])
@pytest.mark.parametrize(("depth", "status"), [(31, 201), (32, 201), (33, 400), (100, 400), (100_000, 400)])
def test_32_levels_are_deep_enough(team: Tenant, opening: str, closing: str, core: str, depth: int, status: int):
    """The body itself is the first level; the 33rd is refused, however the levels are made."""
    inner = depth - 3 if core == "[]" else depth - 2
    value = opening * inner + core + closing * inner
    metadata = f'{{"a": {value}}}' if core == "[]" else value

    reply = send(team, f'{{"projectId": "{team.project_id}", "content": "{new_id()}", "metadata": {metadata}}}')

    assert reply.status_code == status


def test_brackets_inside_strings_are_no_nesting(team: Tenant):
    """Only structure counts."""
    assert team.post_memory(content='{[{["\\"' * 50).status_code == 201


def test_many_brackets_side_by_side_are_no_nesting(team: Tenant):
    """Depth is measured, not number."""
    assert team.post_memory(content=new_id(), metadata={"a": [[]] * 1000}).status_code == 201


@pytest.mark.parametrize(
    "body",
    [b"[" * 40 + b'"' + b'\\"' * 1_000_000, b"[]" * 2_500_000, b'"",' * 1_500_000 + b"[" * 50, b"[" * 5_000_000],
)
def test_a_hostile_body_is_read_in_bounded_time(body: bytes):
    """No body within the limit costs more than a moment."""
    started = time.perf_counter()
    with pytest.raises(Invalid):
        strict_json.decode(body, dict)

    assert time.perf_counter() - started < 2


def test_a_body_over_the_limit_is_refused(team: Tenant):
    """More than 5 MiB is 413, with its length announced or not."""
    big = json.dumps({"projectId": team.project_id, "content": "x" * (5 * 1024 * 1024)}).encode()

    assert code_of(send(team, big)) == (413, "PayloadTooLarge")
    assert code_of(send(team, (big[at : at + 65_536] for at in range(0, len(big), 65_536)))) == (413, "PayloadTooLarge")


def test_a_body_within_the_limit_is_taken(team: Tenant):
    """Just under 5 MiB of many texts goes through."""
    items = [{"projectId": team.project_id, "content": f"{n} " + "x" * 999_000} for n in range(5)]
    body = json.dumps(items).encode()

    assert 4_900_000 < len(body) < 5 * 1024 * 1024
    assert send(team, body, "/v1/memories/batch").status_code == 201


def test_a_text_over_a_million_characters_is_refused(team: Tenant):
    """Characters are counted, not bytes; a million is allowed."""
    assert team.post_memory(content="é" * 1_000_000).status_code == 201
    assert code_of(team.post_memory(content="é" * 1_000_001)) == REFUSED
    assert code_of(team.post_memory(facts=["x" * 1_000_001])) == REFUSED


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json; charset=utf-16", ""],
)
def test_a_body_of_another_media_type_is_refused(team: Tenant, content_type: str):
    """JSON only, in UTF-8."""
    reply = send(team, '{"name": "n"}', "/v1/projects", content_type=content_type)

    assert code_of(reply) == (415, "UnsupportedMediaType")


def test_a_body_without_a_media_type_is_refused(team: Tenant):
    """Nothing is guessed."""
    request = team.http.build_request("POST", "/v1/projects", content=b'{"name": "n"}')
    request.headers.pop("content-type", None)

    assert code_of(team.http.send(request)) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=UTF-8"])
def test_json_is_taken_however_it_is_written(team: Tenant, content_type: str):
    """Case and the usual parameter do not matter."""
    assert send(team, '{"name": "n"}', "/v1/projects", content_type=content_type).status_code == 201


@pytest.mark.parametrize("encoding", ["gzip", "identity", "br"])
def test_an_encoded_body_is_refused(team: Tenant, encoding: str):
    """A body comes as it is."""
    assert code_of(send(team, "{}", content_encoding=encoding)) == (415, "UnsupportedMediaType")


def test_the_media_type_is_looked_at_before_the_body_and_after_the_scope(team: Tenant):
    """401 comes before 415, and 415 before 400."""
    nobody = httpx.post(f"{team.http.base_url}/v1/memories", content=b"{", headers={"content-type": "text/plain"})

    assert nobody.status_code == 401
    assert send(team, "{", content_type="text/plain").status_code == 415


@pytest.mark.parametrize("body", ['{"kind": "%s"}', '{"%s": 1}', '{"title": 1, "%s": 1}'])
def test_an_error_is_small_and_echoes_no_value(team: Tenant, body: str):
    """A few bytes in or megabytes in: the answer is about the form and not of the size of the input."""
    reply = send(team, body % ("secret" * 100_000))

    assert code_of(reply) == REFUSED
    assert len(reply.content) < 2_000
    assert "secretsecret" not in reply.text or body.startswith('{"%s')


def test_numbers_in_objects_come_back_exactly(team: Tenant):
    """Large integers and floats of metadata are kept as they were sent."""
    written = '{"a": 123456789012345678901234567890, "b": 0.1, "c": 1e308, "d": -0.0}'
    stored = literal(team, "metadata", written).json()["memory"]["metadata"]

    assert stored == json.loads(written)
