"""`keys`: the same rules as over HTTP, for anyone who can open the database."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.root import main

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on a database with a team `t`."""
    monkeypatch.setenv("CMEM_DATA_DIR", str(tmp_path))

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments))

    assert invoke("db", "upgrade").exit_code == 0
    assert invoke("teams", "create", "t", "--json").exit_code == 0
    return invoke


def shown(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_keys_are_created_listed_rotated_and_revoked(run: Run):
    """The list shows each change; a secret is printed only by the command that created it."""
    made = shown(run("keys", "create", "--team", "t", "--scope", "memories:read", "--name", "ci", "--json"))
    rotated = shown(run("keys", "rotate", made["id"], "--overlap-seconds", "60", "--json"))
    revoked = shown(run("keys", "revoke", made["apiKey"].rsplit("_", 1)[0], "--team", "t", "--json"))
    listed = run("keys", "list", "--team", "t", "--json")

    assert made.keys() == rotated.keys() == {"id", "apiKey", "teamId", "projectId", "scopes"}
    assert revoked["id"] == made["id"]
    assert [(key["id"], key["state"]) for key in shown(listed)] == [(made["id"], "revoked"), (rotated["id"], "active")]
    assert made["apiKey"] not in listed.output


def test_a_server_key_belongs_to_no_team(run: Run):
    """The scope server:admin is refused for a team."""
    made = shown(run("keys", "create", "--server", "--scope", "server:admin", "--json"))

    assert (made["teamId"], made["scopes"]) == (None, ["server:admin"])
    assert [key["id"] for key in shown(run("keys", "list", "--server", "--json"))] == [made["id"]]
    assert run("keys", "create", "--team", "t", "--scope", "server:admin").exit_code != 0


@pytest.mark.parametrize("arguments", [(), ("--server", "--team", "t")])
def test_a_key_belongs_to_a_team_or_to_the_server(run: Run, arguments: tuple[str, ...]):
    """Exactly one of the two options is required."""
    result = run("keys", "create", *arguments)

    assert result.exit_code != 0
    assert "either --team TEAM or --server" in result.output


def test_an_unknown_key_fails_in_one_line(run: Run):
    """Also one that belongs to another team."""
    made = shown(run("keys", "create", "--team", "t", "--json"))
    run("teams", "create", "other")

    for arguments in (("revoke", "nothing"), ("revoke", made["id"], "--team", "other"), ("rotate", "nothing")):
        result = run("keys", *arguments)
        assert (result.exit_code, result.output.strip()) == (1, "Error: There is no such key.")
