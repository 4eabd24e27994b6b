"""The image and its scripts, by the linters of their languages, and what no linter knows."""

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.docker import FOLDER

BIN = Path(sys.executable).parent
ROOT = FOLDER.parent
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
WITHOUT_KUBERNETES = """
import sys
sys.modules["kubernetes"] = None
import chromadb
import app.cli
import app.vectors.chroma.child
client = chromadb.PersistentClient(sys.argv[1])
client.create_collection("memories", embedding_function=None).add(ids=["a"], embeddings=[[1.0, 0.0]])
"""
SCRIPTS = sorted(path.name for path in FOLDER.iterdir() if path.is_file() and path.read_bytes().startswith(b"#!"))


def linted(*command: str | Path) -> str:
    """What a linter has to say."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def test_the_dockerfile_is_clean():
    assert linted(BIN / "hadolint", "--failure-threshold", "style", FOLDER / "Dockerfile") == ""


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_clean_and_can_be_run(name: str):
    """By any POSIX shell: the image has no other."""
    assert linted(BIN / "shellcheck", FOLDER / name) == ""
    listed = subprocess.run(["git", "ls-files", "-s", FOLDER / name], cwd=ROOT, capture_output=True, text=True)
    assert listed.stdout.startswith("100755 ")


def test_the_final_stage_builds_nothing_and_is_nobody():
    """What installs stays in the builder; the server is a fixed number without a name or rights."""
    builder, final = re.split(r"\n(?=FROM )", DOCKERFILE)[-2:]

    assert "--require-hashes -r requirements.lock" in builder
    assert "apt-get" not in DOCKERFILE
    assert re.findall(r"pip \w+|python -m venv", final) == ["pip uninstall"]
    assert re.search(r"^USER (\d+):(\d+)$", final, re.MULTILINE)
    assert re.findall(r"^(?:ENTRYPOINT|CMD) (.)", final, re.MULTILINE) == ["[", "["]  # no shell between


def test_both_stages_stand_on_one_pinned_base():
    """Bytecode of the builder is good in the image."""
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)

    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", bases[0])


def test_what_builds_the_wheel_is_named_whole():
    """The Dockerfile takes these from the lock, with their hashes; hatchling may come to need another."""
    named = re.search(r"kept = /\^\(([^)]+)\)==/", DOCKERFILE)
    needed = [Requirement(each) for each in requires("hatchling") or []]
    names = {each.name for each in needed if each.marker is None or each.marker.evaluate()}

    assert named
    assert set(named.group(1).split("|")) == {"hatchling", *names}


def test_the_build_sees_only_what_the_image_is_made_of():
    """The ignore file lets in what the Dockerfile copies, and nothing else: no data, no secret."""
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = {path for line in re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE) for path in line.split()}

    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert [path for path in copied if not (ROOT / path).exists()] == []


def test_nothing_that_the_image_leaves_out_is_imported(tmp_path: Path):
    """The commands, Chroma inside and a client of it do without the package that Chroma's cluster asks for."""
    assert "uninstall --yes kubernetes" in DOCKERFILE
    assert linted(sys.executable, "-c", WITHOUT_KUBERNETES, tmp_path) == ""
