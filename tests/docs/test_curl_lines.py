"""Every curl line of the pages works as it is printed, against a server started by `serve`."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.cli import serve
from tests.docs.pages import PAGES, README, MarkdownPage
from tests.serving import serving

pytestmark = pytest.mark.process

FACT: Final = "The payment gateway waits three seconds for the bank."
OTHER_PROGRAMS: Final = ("cmem-server ", ".venv/bin/", "docker ", "make ")
HELPER: Final = MarkdownPage("docs/use/api.md").blocks("sh")[0]
"""The function `cmem`, which the other pages use."""
FAIL_ON_ERRORS: Final = 'curl() { command curl --fail-with-body --show-error "$@"; }\n'


def curl_script(page: MarkdownPage) -> str:
    """Return the requests of a page in order; commands of other programs are tested elsewhere."""
    blocks = [block for block in page.blocks("sh") if "$URL" in block]
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith(OTHER_PROGRAMS)]
    return "\n".join(lines)


WITH_REQUESTS: Final = [page for page in PAGES if curl_script(page)]


@pytest.fixture
def first_run(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables that `serve` on an empty folder tells a newcomer to export."""
    with serving(tmp_path) as started:
        yield started.exported


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The same variables, of one server for all pages."""
    with serving(tmp_path_factory.mktemp("data")) as started:
        yield started.exported


@pytest.fixture
def variables(exported: dict[str, str]) -> dict[str, str]:
    """The variables that the examples use: those of the first start, and ids of things made for this page."""
    headers = {"Authorization": f"Bearer {exported['KEY']}"}
    project = {"projectId": exported["PROJECT"]}
    with httpx.Client(base_url=exported["URL"], headers=headers, trust_env=False) as http:

        def created(path: str, **body: object) -> Any:
            return http.post(path, json=body).raise_for_status().json()

        session = created("/v1/sessions/start", **project)["session"]
        memory = created("/v1/memories", **project, content="An example.", serverSessionId=session["id"])["memory"]
        key = created("/v1/keys", name="an example", scopes=["memories:read", "memories:write"])
        team_id = http.get("/v1/auth/whoami").raise_for_status().json()["teamId"]
    ids = {"SESSION": session["id"], "MEMORY": memory["id"], "KEY_ID": key["id"], "TEAM": team_id}
    return {**exported, **ids, "PATH": os.environ["PATH"]}


def replies_by_curl(exported: dict[str, str]) -> list[Any]:
    """Return the replies to the lines of the README, pasted into a shell."""
    script = serve.FIRST_STEPS.replace("\ncurl", "\necho\ncurl")  # one reply per line
    environment = {**exported, "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "-euc", script], env=environment, capture_output=True, text=True, timeout=60)
    return [json.loads(line) for line in done.stdout.splitlines()]


def replies_by_httpx(exported: dict[str, str]) -> list[Any]:
    """Return the replies to the same requests, where there is no curl."""
    lines = serve.FIRST_STEPS.replace("'$PROJECT'", exported["PROJECT"])
    headers = {"Authorization": f"Bearer {exported['KEY']}", "Content-Type": "application/json"}
    with httpx.Client(base_url=exported["URL"], headers=headers, trust_env=False) as http:
        requests = re.findall(r"\$URL(\S+) .*\n  -d '(.*)'\n", lines)
        return [http.post(path, content=body).json() for path, body in requests]


def test_readme_shows_the_lines_that_serve_prints():
    """A newcomer may paste from either."""
    assert f"```sh\n{serve.FIRST_STEPS}```" in README.text


def test_first_lines_of_the_readme_work_as_printed(first_run: dict[str, str]):
    """Write, search, context: each answers with the memory that was just written."""
    written, found, context = replies_by_curl(first_run) if shutil.which("curl") else replies_by_httpx(first_run)

    assert written["memory"]["content"] == FACT
    assert [memory["content"] for memory in found["memories"]] == [FACT]
    assert FACT in context["context"]


def test_pages_with_requests_are_found():
    """The pages for users and administrators are among them."""
    paths = {page.path for page in WITH_REQUESTS}

    assert {"README.md", "docs/use/search.md", "docs/administer/deletion.md"} <= paths


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")
@pytest.mark.parametrize("page", WITH_REQUESTS, ids=[page.path for page in WITH_REQUESTS])
def test_every_curl_line_of_a_page_succeeds(page: MarkdownPage, variables: dict[str, str], tmp_path: Path):
    """Run in the order of the page; the first request that is refused fails."""
    script = FAIL_ON_ERRORS + HELPER + curl_script(page)
    done = subprocess.run(
        ["bash", "-euxc", script], env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr.replace(variables["KEY"], "$KEY") + done.stdout[-500:]


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")
def test_a_request_that_is_refused_is_noticed(variables: dict[str, str]):
    """The test above can fail."""
    script = f"{FAIL_ON_ERRORS}{HELPER}cmem $URL/v1/search -d '{{\"misspelt\": 1}}'"

    assert subprocess.run(["bash", "-euc", script], env=variables, capture_output=True, timeout=60).returncode != 0
