"""The site builds strictly: every link leads somewhere, every page is in it, and nothing is loaded from elsewhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests import ROOT
from tests.docs.pages import PAGES

pytestmark = pytest.mark.process

LOADED: Final = re.compile(
    r"<(?:script|img|iframe)[^>]+src=\"?(https?:[^\s\">]+)|<link(?![^>]*canonical)[^>]+href=\"?(https?:[^\s\">]+)"
)
SOURCES: Final = ("docs", "docker", "openapi", ".mkdocs.yml", *(page.path for page in PAGES if "/" not in page.path))


def build(project: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout; warnings are errors."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]  # --quiet would drop the warnings uncounted
    options = ["--config-file", project / ".mkdocs.yml", "--site-dir", site]
    environment = {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run([*command, *options], env=environment, capture_output=True, text=True, timeout=120)


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path):
    """Every page of docs/ is in it, and so are the pages of the root folder."""
    built = build(ROOT, tmp_path)
    html = {
        path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")
    }
    expected = {f"project/{page.path}" if "/" not in page.path else page.path.removeprefix("docs/") for page in PAGES}

    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    assert {name.replace("README.md", "index.md").replace(".md", ".html") for name in expected} <= html.keys()
    assert {name: LOADED.findall(text) for name, text in html.items() if LOADED.search(text)} == {}
    assert (tmp_path / "project" / "openapi" / "openapi.json").is_file()
    assert list(tmp_path.rglob("*.py")) == []


@pytest.mark.parametrize("link", ["nowhere.md", "use/search.md#nothing", "../docker/nothing.yaml"])
def test_a_broken_link_breaks_the_build(tmp_path: Path, link: str):
    """A page, a heading, or a file of the project that does not exist."""
    project = tmp_path / "project"
    project.mkdir()
    for name in SOURCES:
        source = ROOT / name
        shutil.copytree(source, project / name) if source.is_dir() else shutil.copy(source, project / name)
    page = project / "docs" / "index.md"
    page.write_text(f"{page.read_text(encoding='utf-8')}\n[broken]({link})\n", encoding="utf-8")

    built = build(project, tmp_path / "site")

    assert built.returncode != 0
    assert link.split("/")[-1].split("#")[0] in built.stderr
