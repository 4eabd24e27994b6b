"""The image and its scripts: linted, and checked for what no linter knows."""

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.docker import FOLDER

pytestmark = pytest.mark.process

BIN = Path(sys.executable).parent
ROOT = FOLDER.parent
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
WITHOUT_KUBERNETES = """
import sys
sys.modules["kubernetes"] = None
import chromadb
from app.cli import main
groups = [main, *main.commands.values()]
assert [name for group in groups for name in getattr(group, "commands", {}) if group.commands[name]]  # imports all
import app.processes.worker
import app.vectors.chroma.child
client = chromadb.PersistentClient(sys.argv[1])
client.create_collection("memories", embedding_function=None).add(ids=["a"], embeddings=[[1.0, 0.0]])
"""
SCRIPTS = sorted(path.name for path in FOLDER.iterdir() if path.is_file() and path.read_bytes().startswith(b"#!"))


def linted(*command: str | Path) -> str:
    """Return the output of a linter that failed."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def test_the_dockerfile_is_clean():
    assert linted(BIN / "hadolint", "--failure-threshold", "style", FOLDER / "Dockerfile") == ""


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_clean_and_executable(name: str):
    """Any POSIX shell can run it; the image has no other."""
    assert linted(BIN / "shellcheck", FOLDER / name) == ""
    listed = subprocess.run(["git", "ls-files", "-s", FOLDER / name], cwd=ROOT, capture_output=True, text=True)
    assert listed.stdout.startswith("100755 ")


def test_the_final_stage_builds_nothing_and_is_not_root():
    """Installers stay in the builder, and the server runs as a fixed user id without privileges."""
    builder, final = re.split(r"\n(?=FROM )", DOCKERFILE)[-2:]

    assert "--require-hashes -r requirements.lock" in builder
    assert "apt-get" not in DOCKERFILE
    assert re.findall(r"pip \w+|python -m venv", final) == ["pip uninstall"]
    assert re.search(r"^USER (\d+):(\d+)$", final, re.MULTILINE)
    assert re.findall(r"^(?:ENTRYPOINT|CMD) (.)", final, re.MULTILINE) == ["[", "["]  # no shell between


def test_both_stages_use_one_pinned_base():
    """So that the builder's bytecode is valid in the image."""
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)

    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", bases[0])


def test_all_build_requirements_are_named():
    """The Dockerfile takes them from the lock file with their hashes; hatchling may need another one some day."""
    named = re.search(r"kept = /\^\(([^)]+)\)==/", DOCKERFILE)
    needed = [Requirement(each) for each in requires("hatchling") or []]
    names = {each.name for each in needed if each.marker is None or each.marker.evaluate()}

    assert named
    assert set(named.group(1).split("|")) == {"hatchling", *names}


def test_the_build_context_is_only_what_the_image_needs():
    """The ignore file admits what the Dockerfile copies and nothing else: no data, no secrets."""
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = {path for line in re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE) for path in line.split()}

    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert [path for path in copied if not (ROOT / path).exists()] == []


def test_nothing_imports_what_the_image_omits(tmp_path: Path):
    """The commands, the embedded Chroma and its client work without a package that only Chroma's cluster needs."""
    assert "uninstall --yes kubernetes" in DOCKERFILE
    assert linted(sys.executable, "-c", WITHOUT_KUBERNETES, tmp_path) == ""
