"""Export and import are inverses: for every field and script, when repeated, and when killed halfway."""

import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from app.caller import MEMORIES_WRITE, Caller, server_owner
from app.errors import Forbidden, Invalid
from app.services.identity import teams
from app.services.memories import memories
from app.services.projects import projects
from app.services.shared import strict_json
from app.services.transfer import exporting, importing, markdown, ndjson
from app.services.transfer.transfer_records import Record
from app.store.database import Database
from tests.databases import Databases, database_url
from tests.services import full_project

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@pytest.fixture
def caller(database: Database) -> Caller:
    return new_team(database, "a")


def new_team(database: Database, name: str) -> Caller:
    with database.write() as connection:
        return server_owner().within(teams.create(connection, server_owner(), name=name).id)


def exported(database: Database, caller: Caller, project_id: str | None = None) -> bytes:
    with database.read() as connection:
        selected = exporting.select_projects(connection, caller, project_id)
    return b"".join(exporting.chunks(database, caller, selected))


def imported(database: Database, caller: Caller, chunks: Iterable[bytes], **options) -> importing.ImportSummary:
    run = importing.Import(database, caller, **options)
    try:
        batches = ndjson.Batches(lambda line: strict_json.decode(line, Record), run.report)
        for chunk in chunks:
            for batch in batches.feed(chunk):
                run.import_batch(batch)
        for batch in batches.rest():
            run.import_batch(batch)
        return run.finish()
    finally:
        run.close()


def without_ids(export: bytes) -> str:
    """Replace each id by the number of its first appearance."""
    numbers: dict[str, int] = {}
    return _ID.sub(lambda match: str(numbers.setdefault(match.group(), len(numbers))), export.decode())


def test_round_trip_changes_only_the_ids(database: Database, caller: Caller):
    """Thousands of rows with every field filled, in three scripts, into an empty team and out again."""
    rows = 5_000 if database.dialect == "sqlite" else 1_000
    full_project.create(database, caller, rows=rows)
    first = exported(database, caller)
    other = new_team(database, "b")

    report = imported(database, other, [first])
    second = exported(database, other)

    assert (report.created, report.skipped, report.failed) == (rows + rows // 1_000, 0, 0)
    assert without_ids(second) == without_ids(first)
    assert set(_ID.findall(second.decode())) & set(_ID.findall(first.decode())) == set()


def test_round_trip_with_kept_ids_changes_nothing(
    database: Database, caller: Caller, databases: Databases, tmp_path: Path
):
    """Into an empty team of another server."""
    full_project.create(database, caller, rows=500)
    first = exported(database, caller)
    with database_url(databases, tmp_path / "other") as url, closing(Database(url)) as elsewhere:
        other = new_team(elsewhere, "b")
        report = imported(elsewhere, other, [first], keep_ids=True)

        assert (report.created, report.failed) == (501, 0)
        assert exported(elsewhere, other) == first


@pytest.mark.parametrize("keep_ids", [False, True])
def test_importing_the_same_file_again_creates_nothing(database: Database, caller: Caller, keep_ids: bool):
    """Even if the rows got other ids."""
    full_project.create(database, caller, rows=100)
    export = exported(database, caller)
    target = caller if keep_ids else new_team(database, "b")
    imported(database, target, [export], keep_ids=keep_ids)
    before = exported(database, target)

    report = imported(database, target, [export], keep_ids=keep_ids)

    assert (report.created, report.skipped, report.failed) == (0, 101, 0)
    assert exported(database, target) == before


def test_a_file_may_come_in_any_chunks(database: Database, caller: Caller):
    """Lines and characters are cut anywhere on the way."""
    full_project.create(database, caller, rows=20)
    export = exported(database, caller)
    other = new_team(database, "b")
    chunks = [export[start : start + 7] for start in range(0, len(export), 7)]

    assert imported(database, other, chunks).created == 21


def test_existing_rows_of_equal_content_are_referenced(database: Database, caller: Caller):
    """They are not duplicated, and references are resolved to them."""
    project_id = full_project.create(database, caller, rows=30)
    export = exported(database, caller, project_id)

    report = imported(database, caller, [export], into_project_id=project_id)

    assert (report.created, report.failed) == (0, 0)
    assert exported(database, caller, project_id) == export


def test_deleted_memories_are_not_exported(database: Database, caller: Caller):
    """Deleted is deleted."""
    project_id = full_project.create(database, caller, rows=3)
    with database.read() as connection:
        selected = exporting.select_projects(connection, caller, project_id)
    ids = [record.id for record in exporting.records(database, caller, selected) if hasattr(record, "kind")]
    with database.write() as connection:
        memories.remove(connection, caller, ids[0], precondition=lambda _: True)

    assert ids[0] not in exported(database, caller).decode()


def test_damaged_line_fails_alone(database: Database, caller: Caller):
    """It is reported by its number; the rest is imported."""
    full_project.create(database, caller, rows=10)
    lines = exported(database, caller).split(b"\n")
    lines[5] = lines[5].replace(b'"pinned":', b'"pinned":"yes","was":')
    lines[6] = b'{"record":"memory"'
    other = new_team(database, "b")

    report = imported(database, other, [b"\n".join(lines)])

    assert (report.created, report.failed, [warning.line for warning in report.warnings]) == (9, 2, [6, 7])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda export: b"", "the file is truncated"),
        (lambda export: export[: len(export) // 2], "the file is truncated"),
        (lambda export: b"not an export\n" + export, "the first line must be its header"),
        (lambda export: export.replace(b'"version":1', b'"version":2', 1), "newer than 1"),
        (lambda export: export.split(b"\n", 1)[1], "the first line must be its header"),
    ],
)
def test_incomplete_or_foreign_file_is_rejected(database: Database, caller: Caller, spoil, message: str):
    """The error message is one sentence."""
    full_project.create(database, caller, rows=10)
    export = spoil(exported(database, caller))

    with pytest.raises(Invalid, match=message):
        imported(database, new_team(database, "b"), [export])


def test_kept_ids_of_another_team_are_rejected_row_by_row(database: Database, caller: Caller):
    """Nothing is overwritten and nothing moves."""
    project_id = full_project.create(database, caller, rows=10)
    export = exported(database, caller, project_id)
    other = new_team(database, "b")
    with database.write() as connection:
        target = projects.create(connection, other, name="target").id

    report = imported(database, other, [export], into_project_id=target, keep_ids=True)

    assert report.created == 0
    assert exported(database, caller, project_id) == export


def test_import_requires_team_admin(database: Database, caller: Caller):
    """The scope for writing single memories is not enough."""
    with pytest.raises(Forbidden):
        importing.Import(database, Caller(team_id=caller.team_id, scopes=frozenset({MEMORIES_WRITE})))


def test_killed_import_continues_where_it_stopped(database: Database, caller: Caller, tmp_path: Path):
    """kill -9 in the middle, then the same file again: the same rows as without the crash."""
    full_project.create(database, caller, rows=1_500)
    export = tmp_path / "export.ndjson"
    export.write_bytes(exported(database, caller))
    other = new_team(database, "b")
    environment = {**os.environ, "CMEM_DATABASE_URL": database.url, "CMEM_DATA_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "app", "import", str(export), "--team", "b"]
    process = subprocess.Popen(command, env=environment)
    while count(database, other) < 250:
        assert process.poll() is None, "the import finished before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 0 < count(database, other) < 1_200

    report = imported(database, other, [export.read_bytes()])

    assert (report.created + report.skipped, report.failed) == (1_502, 0)
    assert without_ids(exported(database, other)) == without_ids(export.read_bytes())


def count(database: Database, caller: Caller) -> int:
    with database.read() as connection:
        sql = "SELECT count(*) FROM memory_items WHERE team_id = :team"
        return connection.scalar(text(sql), {"team": caller.team_id}) or 0


def test_memory_use_does_not_grow_with_the_file(database: Database, caller: Caller):
    """Fifteen megabytes go through an import of existing rows."""
    full_project.create(database, caller, rows=20)
    lines = exported(database, caller).split(b"\n")
    long = (line for line in (*lines[:2], *lines[2:-2] * 500, *lines[-2:]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    report = imported(database, caller, (line + b"\n" for line in long))

    assert report.created == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024


def test_markdown_is_human_readable(database: Database, caller: Caller):
    """Days, titles, facts and files, and no ids."""
    full_project.create(database, caller, rows=5)
    with database.read() as connection:
        selected = exporting.select_projects(connection, caller, None)

    text = "".join(markdown.lines(exporting.records(database, caller, selected)))

    assert text.startswith("# everything 支付\n\n## 2026-03-01\n\n### 00:00 0 The gateway waits")
    assert "*concepts: 超时, timeouts*" in text
    assert _ID.search(text) is None
