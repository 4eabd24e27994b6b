"""Export and import over HTTP: streams of NDJSON, for administrators of the team."""

from collections.abc import Callable, Iterator

import pytest

from tests.conftest import Server, Tenant, client, make_key
from tests.services import full_project
from tests.services.transfer.test_round_trip import without_ids

NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
def exported(server: Server, team: Tenant) -> bytes:
    """An export of a project of the team, as a client receives it."""
    project_id = full_project.create(server.database, team.caller, rows=200)
    reply = team.http.get(f"/v1/projects/{project_id}/export")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/x-ndjson")
    return reply.content


def import_into(tenant: Tenant, content: bytes | Iterator[bytes], headers: dict[str, str] = NDJSON):
    return tenant.http.post(f"/v1/projects/{tenant.project_id}/import", content=content, headers=headers)


def test_an_export_can_be_imported_elsewhere(exported: bytes, as_team: Callable[[str], Tenant]):
    """Another team's project then holds the same rows, except for ids and the project's own line."""
    other = as_team("b")

    assert import_into(other, exported).json() == {"created": 201, "skipped": 0, "failed": 0}
    again = other.http.get(f"/v1/projects/{other.project_id}/export").content
    assert rows_of(again) == rows_of(exported)


def rows_of(export: bytes) -> str:
    return without_ids(b"\n".join(line for line in export.split(b"\n") if b'{"record":"project"' not in line))


def test_importing_the_same_file_again_creates_nothing(exported: bytes, as_team: Callable[[str], Tenant]):
    """Every row already exists."""
    import_into(as_team("b"), exported)

    assert import_into(as_team("b"), exported).json() == {"created": 0, "skipped": 201, "failed": 0}


def test_a_stream_may_be_longer_than_any_other_body(exported: bytes, as_team: Callable[[str], Tenant]):
    """Chunked, six times the limit of other bodies."""
    lines = exported.split(b"\n")
    blank = b" " * 1_000_000 + b"\n"
    pieces = [lines[0] + b"\n", *[blank] * 30, *(line + b"\n" for line in lines[1:])]

    assert import_into(as_team("b"), iter(pieces)).json()["created"] == 201


def test_imported_memories_are_found_by_search(exported: bytes, as_team: Callable[[str], Tenant]):
    """The full-text index is updated with the rows."""
    other = as_team("b")
    import_into(other, exported)

    found = other.http.post("/v1/search", json={"projectId": other.project_id, "query": "支付网关"}).json()

    assert len(found["memories"]) == 20


@pytest.mark.parametrize(
    ("content", "headers", "status", "detail"),
    [
        (b"", NDJSON, 400, "the file is truncated"),
        (b'{"record":"header"}\n{"record":"proj', NDJSON, 400, "the file is truncated"),
        (b"[]\n", NDJSON, 400, "first line must be its header"),
        (b"{}", {"Content-Type": "application/json"}, 415, "application/x-ndjson"),
        (b"{}", NDJSON | {"Content-Encoding": "gzip"}, 415, "must not be compressed or otherwise encoded"),
    ],
)
def test_an_invalid_export_is_refused(team: Tenant, content: bytes, headers: dict, status: int, detail: str):
    """The reason names what is wrong."""
    reply = import_into(team, content, headers)

    assert reply.status_code == status
    assert detail in reply.json()["detail"]


def test_export_and_import_require_team_admin_and_a_project_within_reach(
    server: Server, team: Tenant, as_team: Callable[[str], Tenant]
):
    """403 without the scope, 404 for another team's project."""
    key = make_key(server.database, team.caller, scopes=("memories:read", "memories:write"))
    path = f"/v1/projects/{team.project_id}"
    stranger = as_team("b").http

    with client(server, key) as writer:
        assert writer.get(f"{path}/export").status_code == 403
        assert writer.post(f"{path}/import", content=b"x", headers=NDJSON).status_code == 403
    assert stranger.get(f"{path}/export").status_code == 404
    assert stranger.post(f"{path}/import", content=b"x", headers=NDJSON).status_code == 404


def test_exports_and_imports_are_audited(exported: bytes, team: Tenant, as_team: Callable[[str], Tenant]):
    """Copying a whole project leaves a trace."""
    import_into(as_team("b"), exported)

    exports = team.http.get("/v1/audit", params={"action": "project.export"}).json()["audit"]
    imports = as_team("b").http.get("/v1/audit", params={"action": "project.import"}).json()["audit"]

    assert (len(exports), sum(entry["count"] for entry in imports)) == (1, 201)
