"""What `make dist` builds: installed into a fresh environment, it starts and answers without the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from app.version import VERSION
from tests import ROOT
from tests.serving import started_by

pytestmark = pytest.mark.process

UV = Path(sys.executable).with_name("uv")


def run(*command: str | Path) -> str:
    """Run a program to its end and return what it printed."""
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=240).stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the locked packages and the wheel, and nothing else."""
    environment = tmp_path_factory.mktemp("environment") / "venv"
    run(UV, "venv", "--quiet", "--python", sys.executable, environment)
    install = [UV, "pip", "install", "--quiet", "--system-certs", "--python", environment / "bin" / "python"]
    run(*install, "--require-hashes", "-r", ROOT / "requirements.lock")
    run(*install, "--no-deps", wheel)
    return environment / "bin"


def test_the_wheel_holds_the_packages_their_types_and_the_migrations(wheel: Path):
    """It holds no tests, no docs and no data."""
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names if ".dist-info" not in name}

    assert top == {"app", "migrations"}
    assert {"app/py.typed", "migrations/env.py", "app/vectors/embedding/wordpiece_vocabulary.txt"} <= set(names)
    assert f"{VERSION}" in wheel.name


def test_the_installed_server_starts_and_answers(fresh: Path, tmp_path: Path):
    """A first start away from the checkout prints a key that writes and finds a memory."""
    environment = {"PATH": os.environ["PATH"], "CMEM_DATA_DIR": str(tmp_path / "data"), "CMEM_VECTORS": "off"}
    with (
        started_by([fresh / "cmem-server", "serve", "--port", "0"], environment, tmp_path) as server,
        httpx.Client(
            base_url=server.url, headers={"Authorization": f"Bearer {server.exported['KEY']}"}, trust_env=False
        ) as client,
    ):
        memory = {"projectId": server.exported["PROJECT"], "content": "The wheel carries its migrations."}
        stored = client.post("/v1/memories", json=memory)
        found = client.post("/v1/search", json={"projectId": server.exported["PROJECT"], "query": "migrations"})

    assert stored.status_code == 201
    assert [hit["id"] for hit in found.json()["memories"]] == [stored.json()["memory"]["id"]]


def test_the_installed_command_knows_its_version(fresh: Path, tmp_path: Path):
    """The version is that of the package."""
    printed = subprocess.run(
        [fresh / "cmem-server", "--version"], check=True, capture_output=True, text=True, cwd=tmp_path, timeout=60
    ).stdout

    assert printed == f"cmem-server, version {VERSION}\n"
