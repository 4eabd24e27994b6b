"""The README keeps its word, and no file holds what belongs to a machine, a registry or a secret."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import pytest

from app.cli import main, serve
from app.services.identity import credentials
from app.settings import Settings
from tests import ROOT
from tests.serving import serving

README = (ROOT / "README.md").read_text(encoding="utf-8")
REGISTRIES = ("pypi.", "pythonhosted.", "npmjs.", "yarnpkg.", "debian.org", "ghcr.", "quay.", "docker.io", "jsr.io")
MACHINE_PATHS = re.compile(r"(?<![\w.~-])/(?:work|root|tmp/probe)\b(?!\w)")
PRIVATE_KEY = "-----BEGIN " + "PRIVATE KEY"  # in two parts: this file is looked at too


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_column(title: str) -> set[str]:
    return set(re.findall(r"^\| `([^`]+)` \|", section(title), re.MULTILINE))


def commands(command: click.Command, path: str = "") -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield path.strip()
        return
    for name, each in command.commands.items():
        yield from commands(each, f"{path} {name}")


def tracked_files() -> Iterator[tuple[str, str]]:
    """The name and the text of every file of the project."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        try:
            yield name, (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # a binary, or a file that is being removed


@pytest.fixture
def first_run(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What `serve` on an empty folder tells a newcomer to export."""
    with serving(tmp_path) as started:
        yield started.exported


def by_curl(exported: dict[str, str]) -> list[Any]:
    """The replies to the README's lines, pasted into a shell."""
    script = serve.FIRST_STEPS.replace("\ncurl", "\necho\ncurl")  # one reply a line
    environment = {**exported, "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "-euc", script], env=environment, capture_output=True, text=True, timeout=60)
    return [json.loads(line) for line in done.stdout.splitlines()]


def by_httpx(exported: dict[str, str]) -> list[Any]:
    """The replies to the same requests, where there is no curl."""
    lines = serve.FIRST_STEPS.replace("'$PROJECT'", exported["PROJECT"])
    headers = {"Authorization": f"Bearer {exported['KEY']}", "Content-Type": "application/json"}
    with httpx.Client(base_url=exported["URL"], headers=headers, trust_env=False) as http:
        requests = re.findall(r"\$URL(\S+) .*\n  -d '(.*)'\n", lines)
        return [http.post(path, content=body).json() for path, body in requests]


def test_the_readme_shows_the_lines_that_serve_prints():
    """A newcomer may paste from either."""
    assert f"```sh\n{serve.FIRST_STEPS}```" in README


def test_the_lines_of_the_readme_work_as_printed(first_run):
    """Write, search, context: each answers with the memory that was just written."""
    fact = "The payment gateway waits three seconds for the bank."
    written, found, told = by_curl(first_run) if shutil.which("curl") else by_httpx(first_run)

    assert written["memory"]["content"] == fact
    assert [memory["content"] for memory in found["memories"]] == [fact]
    assert fact in told["context"]


def test_every_setting_stands_in_the_readme_and_no_other():
    """The table is the list of the settings."""
    assert first_column("Settings") == {f"CMEM_{name.upper()}" for name in Settings.model_fields}


def test_every_command_stands_in_the_readme_and_no_other():
    """The table is the list of the commands."""
    assert first_column("Commands") == set(commands(main))


def test_every_guarantee_names_a_test_that_is_there():
    """Nothing is promised that no test stands behind."""
    rows = [row for row in section("Guarantees").splitlines() if row.startswith("| ") and "test behind" not in row]

    assert len(rows) >= 5
    assert [row for row in rows if not re.search(r"`(tests/[^`]+)`", row)] == []
    assert [path for path in re.findall(r"`(tests/[^`]+)`", README) if not (ROOT / path).exists()] == []


def test_every_link_of_the_readme_leads_to_a_file_of_the_project():
    """The project speaks of itself alone."""
    links = re.findall(r"\]\(([^)]+)\)", README)

    assert [link for link in links if not (ROOT / link).exists()] == []
    assert "../" not in README


def test_every_link_of_the_other_pages_leads_to_a_file():
    """They lie in docs/, beside what they speak of."""
    pages = {page: page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md")}
    links = [(page, link) for page, text in pages.items() for link in re.findall(r"\]\(([^)#]+)\)", text)]

    assert links
    assert [link for page, link in links if not (page.parent / link).exists()] == []


def test_no_file_names_a_registry_or_a_place_of_one_machine():
    """What is installed comes from wherever the machine's own configuration says."""
    found = []
    for name, text in tracked_files():
        hosts = [host for host in REGISTRIES if re.search(rf"\b[\w.-]*{re.escape(host)}\w", text)]
        if name != "tests/test_readme.py" and (hosts or MACHINE_PATHS.search(text)):
            found.append((name, hosts or MACHINE_PATHS.findall(text)))

    assert found == []


def test_no_file_holds_a_key():
    """Neither one of our API keys, told by its checksum, nor a private key."""
    found = []
    for name, text in tracked_files():
        keys = [word for word in re.findall(r"cmem_\w+", text) if credentials.parse(word) is not None]
        if keys or PRIVATE_KEY in text:
            found.append(name)

    assert found == []
