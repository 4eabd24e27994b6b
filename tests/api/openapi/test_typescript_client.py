"""A TypeScript client generated from the OpenAPI document, type-checked strictly and run against a live server."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli import openapi
from tests import ROOT
from tests.conftest import Server, Tenant

SOURCES = Path(__file__).parent / "typescript"
BIN = Path(sys.executable).parent


def run(*command: str | Path, folder: Path) -> str:
    """Run a Node.js program and return its output."""
    environment = {**os.environ, "NODE_USE_SYSTEM_CA": "1"}  # like pip and uv, so that a company's proxy is trusted
    line = [str(part) for part in command]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def node_modules() -> Path:
    """The locked packages, installed once, and again if the lock file changes."""
    folder = ROOT / ".build" / "typescript"
    lock, installed = SOURCES / "package-lock.json", folder / "installed.json"
    if not installed.exists() or installed.read_bytes() != lock.read_bytes():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(SOURCES / name, folder)
        run(BIN / "npm", "ci", folder=folder)
        shutil.copy(lock, installed)
    return folder / "node_modules"


@pytest.fixture(scope="module")
def project(node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the generated types and the program that uses them."""
    folder = tmp_path_factory.mktemp("typescript")
    (folder / "node_modules").symlink_to(node_modules)
    for name in ("package.json", "tsconfig.json", "client.ts"):
        shutil.copy(SOURCES / name, folder)
    generator = node_modules / "openapi-typescript" / "bin" / "cli.js"
    run(BIN / "node", generator, ROOT / openapi.PATH, "--output", "schema.ts", folder=folder)
    return folder


@pytest.fixture
def client(project: Path, server: Server, team: Tenant) -> Callable[[str], Any]:
    """Run one step of the program for the team and return its output."""

    def step(name: str) -> Any:
        arguments = (name, server.url, team.api_key, team.project_id)
        return json.loads(run(BIN / "node", "client.ts", *arguments, folder=project))

    return step


def test_a_program_with_the_generated_types_passes_the_strict_type_check(project, node_modules):
    """Required, optional and nullable fields are typed as they are sent."""
    run(BIN / "node", node_modules / "typescript" / "bin" / "tsc", "--project", ".", folder=project)


def test_the_typescript_client_reads_what_it_created(client):
    """A memory comes back with every field."""
    result = client("read")

    assert result["read"] == result["written"]
    assert result["read"]["content"] == "The gateway timeout is three seconds."


def test_the_typescript_client_searches(client):
    """A search finds what was written."""
    assert client("search") == ["The gateway timeout is three seconds."]


def test_the_typescript_client_pages_to_the_end(client):
    """Following the cursor returns each row once."""
    assert client("page") == ["one", "two", "three"]


def test_the_typescript_client_sees_the_code_of_an_error(client):
    """An error is a value with its stable code."""
    assert client("error") == {"status": 404, "code": "NotFound"}


def test_the_typescript_client_clears_a_field_with_null(client):
    """A null is sent, stored and returned as null."""
    assert client("null") is None
