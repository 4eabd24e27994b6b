"""Every command, option, setting, route and make target that a page names exists."""

import json
import re
import shlex
from collections.abc import Iterator
from typing import Final

import click
import pytest

from app.cli import main
from app.settings import Settings
from docs import reference
from tests import ROOT
from tests.docs.pages import IDS, PAGES, MarkdownPage

PROGRAM: Final = re.compile(r"(?:^|[\s=])(?:\.venv/bin/|/opt/cmem/bin/)?cmem-server(?= |$)")
OTHER_VARIABLES: Final = {"CMEM_WAIT_SECONDS", "CMEM_MIGRATE", "CMEM_REPLICA_URL"}
"""Variables of the container and of Litestream's configuration."""
SETTINGS: Final = {f"CMEM_{name.upper()}" for name in Settings.model_fields}
CONTRACT: Final = json.loads((ROOT / "openapi" / "openapi.json").read_text(encoding="utf-8"))
METHOD_AND_PATH: Final = re.compile(r"^(GET|POST|PUT|PATCH|DELETE) (/[^\s?`]*)")
pages = pytest.mark.parametrize("page", PAGES, ids=IDS)


def command_lines(page: MarkdownPage) -> Iterator[str]:
    """Yield what a page says after `cmem-server`, in shell blocks and within the text."""
    for line in [*page.shell_lines(), *page.inline_code()]:
        parts = PROGRAM.split(line, maxsplit=1)
        if len(parts) == 2 and "pip" not in parts[0]:
            yield parts[1].removeprefix(" cmem-server").strip()


def fault_of(line: str) -> str | None:
    """Return what is wrong with a command line: an unknown command or option; None when it is right."""
    command: click.Command = main
    context = click.Context(main)
    words = shlex.split(line.replace("…", ""), comments=True)
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        subcommand = command.get_command(context, words.pop(0))
        if subcommand is None:
            return f"unknown command: {line}"
        command, context = subcommand, click.Context(subcommand)
    known = {option for each in command.get_params(context) for option in (*each.opts, *each.secondary_opts)}
    unknown = [word for word in words if word.startswith("-") and word != "-" and word.split("=")[0] not in known]
    return f"unknown option: {line}" if unknown else None


@pages
def test_every_command_line_of_a_page_exists(page: MarkdownPage):
    """The command and each of its options."""
    assert [fault for line in command_lines(page) if (fault := fault_of(line))] == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("keys create --team default --scope '*'", None),
        ("keys mint", "unknown command: keys mint"),
        ("serve --wrokers 4", "unknown option: serve --wrokers 4"),
    ],
)
def test_a_wrong_command_line_is_noticed(line: str, fault: str | None):
    """The test above can fail."""
    assert fault_of(line) == fault


def test_command_lines_are_found():
    """There are many of them, in shell blocks and in the text."""
    assert len([line for page in PAGES for line in command_lines(page)]) > 40


def test_every_command_is_documented_and_no_other():
    """The reference page lists the commands."""
    commands = {path for path, _ in reference.all_commands()}

    assert len(commands) > 30
    assert {name for name in MarkdownPage("docs/reference/commands.md").first_column() if name in commands} == commands
    assert set(re.findall(r"^## (.+)$", MarkdownPage("docs/reference/commands.md").text, re.MULTILINE)) == commands


def test_every_setting_is_documented_and_no_other():
    """The reference page lists the settings."""
    listed = MarkdownPage("docs/reference/settings.md").first_column()

    assert {name for name in listed if name.startswith("CMEM_")} == SETTINGS


@pages
def test_every_variable_of_a_page_exists(page: MarkdownPage):
    """A setting, the file of a setting, or a variable of the container."""
    named = {name for name in re.findall(r"\bCMEM_[A-Z_]*[A-Z]\b", page.text) if name != "CMEM_"}
    files = {f"{setting}_FILE" for setting in SETTINGS}

    assert named - SETTINGS - files - OTHER_VARIABLES == set()


@pages
def test_every_route_of_a_page_exists(page: MarkdownPage):
    """Names of path parameters may differ; `{id}` is any of them."""
    routes = {(method.upper(), _shape(path)) for path, item in CONTRACT["paths"].items() for method in item}
    named = {(match[1], _shape(match[2])) for code in page.inline_code() if (match := METHOD_AND_PATH.match(code))}

    assert named - routes == set()


def _shape(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path.rstrip("/"))


@pages
def test_every_make_target_of_a_page_exists(page: MarkdownPage):
    """As the Makefile lists them."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    lines = [*page.shell_lines(), *page.inline_code()]
    named = {word for line in lines if line.startswith("make ") for word in line.split()[1:] if "=" not in word}

    assert named - targets == set()


def test_every_setting_is_explained_on_a_page_or_in_the_reference():
    """What most operators look for is on a page of its own subject, too."""
    prose = "".join(page.text for page in PAGES if page.path != "docs/reference/settings.md")
    looked_for = {"CMEM_DATA_DIR", "CMEM_DATABASE_URL", "CMEM_WORKERS", "CMEM_VECTORS", "CMEM_EMBEDDER"}

    assert {name for name in looked_for if name not in prose} == set()
