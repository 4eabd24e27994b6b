"""`export` and `import` as a person and as a script use them."""

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result
from sqlalchemy import delete

from app.caller import Caller, server_owner
from app.services.identity import teams
from app.store.database import Database
from app.store.models import projects
from tests.services import full_project

Command = Callable[..., Result]


def test_a_team_moves_through_a_file(command: Command, store: Database, owner: Caller, tmp_path: Path):
    """Two projects are exported from one team and imported into another."""
    for name in ("first", "second"):
        full_project.create(store, owner, rows=10, name=name)
    with store.write() as connection:
        teams.create(connection, server_owner(), name="b", slug="b")
    file = tmp_path / "out.ndjson"

    assert command("export", "--team", "a", "--out", file).exit_code == 0
    result = command("import", file, "--team", "b", "--json")

    assert json.loads(result.stdout) == {"created": 22, "skipped": 0, "failed": 0, "warnings": []}
    assert file.stat().st_mode & 0o777 == 0o600
    assert command("export", "--team", "b").stdout.count('"record":"project"') == 2


def test_an_import_with_kept_ids_exports_to_an_identical_file(
    command: Command, store: Database, owner: Caller, tmp_path: Path
):
    """Deleted rows come back exactly as they were."""
    project_id = full_project.create(store, owner, rows=10)
    file = tmp_path / "out.ndjson"
    command("export", "--team", "a", "--out", file)
    with store.write() as connection:
        connection.execute(delete(projects).where(projects.c.id == project_id))

    assert command("import", file, "--team", "a", "--keep-ids").output == "created 11, skipped 0, failed 0\n"
    assert command("export", "--team", "a").stdout == file.read_text()


def test_an_export_as_markdown(command: Command, store: Database, owner: Caller):
    """--format markdown is for people."""
    full_project.create(store, owner, rows=5)

    assert command("export", "--team", "a", "--format", "markdown").stdout.startswith("# everything 支付\n")


def test_a_file_that_is_not_an_export_is_refused_in_one_line(command: Command, owner: Caller, tmp_path: Path):
    """With the reason, and exit code 1."""
    (tmp_path / "other.txt").write_text("hello\n")

    result = command("import", tmp_path / "other.txt", "--team", "a")

    assert (result.exit_code, len(result.output.splitlines())) == (1, 1)
    assert "the first line must be its header" in result.output
