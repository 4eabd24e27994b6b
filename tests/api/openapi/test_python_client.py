"""A Python client generated from the OpenAPI document and used against a live server."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from app.cli import openapi
from tests import ROOT
from tests.conftest import Server, Tenant

CONTRACT = ROOT / openapi.PATH
GENERATOR = Path(sys.executable).parent / "openapi-python-client"
PACKAGE = "generated_cmem_client"
CONFIGURATION = """
post_hooks: []  # no formatter: the code is not read by people
content_type_overrides: {application/x-ndjson: application/octet-stream}  # exports and imports are streams of bytes
"""
FACT = "The gateway timeout is three seconds."


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The generated package; the generator reported nothing that it could not translate."""
    folder = tmp_path_factory.mktemp("python")
    (folder / "config.yml").write_text(CONFIGURATION)
    command = [GENERATOR, "generate", "--path", CONTRACT, "--output-path", folder / PACKAGE]
    command += ["--meta", "none", "--config", folder / "config.yml", "--fail-on-warning"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield importlib.import_module(PACKAGE)
    sys.path.remove(str(folder))


def part(package: ModuleType, name: str) -> ModuleType:
    return importlib.import_module(f"{package.__name__}.{name}")


@pytest.fixture
def sdk(package: ModuleType, server: Server, team: Tenant) -> Iterator[SimpleNamespace]:
    """The client of a team, the models, and the functions that the tests call."""
    client = package.AuthenticatedClient(base_url=server.url, token=team.api_key, httpx_args={"trust_env": False})
    with client:
        yield SimpleNamespace(
            client=client,
            project_id=team.project_id,
            models=part(package, "models"),
            create=part(package, "api.memories.create_memory").sync,
            read=part(package, "api.memories.get_memory").sync,
            update=part(package, "api.memories.update_memory").sync,
            listing=part(package, "api.memories.list_memories").sync,
            search=part(package, "api.search.search_memories").sync,
        )


def create_memory(sdk: SimpleNamespace, **fields: str) -> object:
    body = sdk.models.MemoryCreate(project_id=sdk.project_id, **fields)
    return sdk.create(client=sdk.client, body=body).memory


def test_the_python_client_reads_what_it_created(sdk):
    """A memory comes back with every field."""
    written = create_memory(sdk, narrative=FACT)

    assert sdk.read(written.id, client=sdk.client).memory == written
    assert written.content == FACT


def test_the_python_client_searches(sdk):
    """A search finds what was written."""
    create_memory(sdk, narrative=FACT)
    request = sdk.models.SearchRequest(project_id=sdk.project_id, query="gateway timeout")

    assert [memory.content for memory in sdk.search(client=sdk.client, body=request).memories] == [FACT]


def test_the_python_client_pages_to_the_end(sdk):
    """Following the cursor returns each row once."""
    for narrative in ("one", "two", "three"):
        create_memory(sdk, narrative=narrative)
    seen, cursor = [], {}
    while cursor is not None:
        oldest = sdk.models.ListMemoriesOrderBy.OLDEST
        page = sdk.listing(client=sdk.client, project_id=sdk.project_id, limit=2, order_by=oldest, **cursor)
        seen += [memory.content for memory in page.memories]
        cursor = {"cursor": page.next_cursor} if page.next_cursor else None

    assert seen == ["one", "two", "three"]


def test_the_python_client_sees_the_code_of_an_error(sdk):
    """An error is a value with its stable code."""
    refused = sdk.read("no-such", client=sdk.client)

    assert isinstance(refused, sdk.models.Problem)
    assert (refused.status, refused.error) == (404, "NotFound")


def test_the_python_client_clears_a_field_with_null(sdk):
    """A null is sent, stored and returned as None, and fields that were not sent are kept."""
    written = create_memory(sdk, title="Timeouts", text="Three seconds.")
    changed = sdk.update(written.id, client=sdk.client, body=sdk.models.MemoryPatch(title=None)).memory

    assert (changed.title, changed.text) == (None, "Three seconds.")
