"""No file of the project contains what belongs to a machine, a registry or a secret."""

import re
import subprocess
from collections.abc import Iterator

from app.services.identity import credentials
from tests import ROOT

REGISTRIES = ("pypi.", "pythonhosted.", "npmjs.", "yarnpkg.", "debian.org", "ghcr.", "quay.", "docker.io", "jsr.io")
MACHINE_PATHS = re.compile(r"(?<![\w.~-])/(?:work|root|tmp/probe)\b(?!\w)")
PRIVATE_KEY = "-----BEGIN " + "PRIVATE KEY"  # in two parts, because this file is read as well
OWN_NAME = "tests/docs/test_repository.py"


def tracked_files() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every file of the project."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        try:
            yield name, (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # a binary, or a file that is being removed


def test_no_file_names_a_registry_or_a_path_of_one_machine():
    """Packages come from wherever the machine's own configuration says."""
    found = []
    for name, text in tracked_files():
        hosts = [host for host in REGISTRIES if re.search(rf"\b[\w.-]*{re.escape(host)}\w", text)]
        if name != OWN_NAME and (hosts or MACHINE_PATHS.search(text)):
            found.append((name, hosts or MACHINE_PATHS.findall(text)))

    assert found == []


def test_no_file_contains_a_key():
    """Neither one of our API keys, recognised by its checksum, nor a private key."""
    found = []
    for name, text in tracked_files():
        keys = [word for word in re.findall(r"cmem_\w+", text) if credentials.parse(word) is not None]
        if keys or PRIVATE_KEY in text:
            found.append(name)

    assert found == []
