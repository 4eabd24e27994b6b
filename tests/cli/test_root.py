"""The root of all commands: quick, because it imports a command only when that one is run."""

import json
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import click
import pytest
from click.testing import CliRunner

from app.cli import main
from app.cli.lazy import LazyGroup
from app.version import VERSION
from tests import ROOT
from tests.cli import tree

pytestmark = pytest.mark.process

MOST_SECONDS = 0.25
HEAVY = {
    "alembic",
    "argon2",
    "chromadb",
    "chromadb_rust_bindings",
    "httpx",
    "litestar",
    "numpy",
    "onnxruntime",
    "prometheus_client",
    "pydantic",
    "sqlalchemy",
    "structlog",
    "tokenizers",
    "uvicorn",
}
"""Libraries that take long to import."""
DATABASE = {"pydantic", "sqlalchemy", "structlog"}
INDEX = {"httpx", "numpy", "onnxruntime", "prometheus_client", "tokenizers"}
MAY_IMPORT = {
    "adopt_vectors": DATABASE | INDEX,
    "audit": DATABASE,
    "backup": DATABASE | {"alembic"},
    "db": DATABASE | {"alembic"},
    "db_check": DATABASE | {"alembic"},
    "db_copy": DATABASE | {"alembic"},
    "db_current": DATABASE,
    "doctor": DATABASE | INDEX | {"alembic", "argon2"},
    "erase": DATABASE | {"numpy"},
    "export_import": DATABASE,
    "fts": DATABASE | {"alembic"},
    "keys": DATABASE | {"argon2"},
    "legacy_import": DATABASE,
    "maintenance": DATABASE | {"alembic", "numpy"},
    "members": DATABASE,
    "openapi": HEAVY - {"chromadb", "chromadb_rust_bindings"},
    "projects": DATABASE,
    "retention": DATABASE | {"numpy"},
    "serve": HEAVY - {"chromadb", "chromadb_rust_bindings"},
    "teams": DATABASE,
    "vectors": DATABASE | INDEX,
}
"""What the module of each command may import of those. Only `serve` and `openapi` know the API."""


def run_python(code: str, *arguments: str) -> str:
    """Run a program in a process of its own, and return what it prints."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout


def modules_after(statement: str) -> set[str]:
    """Return the modules that are imported after a statement in a new process."""
    code = f"import json, sys\n{statement}\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    return set(json.loads(run_python(code).splitlines()[-1]))


@pytest.mark.parametrize(
    "statement",
    [
        "import app.cli",
        "from app.cli import main; main(['--help'], standalone_mode=False)",
        "from app.cli import main; main(['--version'], standalone_mode=False)",
        "from app.cli import main; main(['db', '--help'], standalone_mode=False)",
        "from app.cli import main; main(['legacy', '--help'], standalone_mode=False)",
    ],
)
def test_help_and_version_import_no_library_but_click(statement: str):
    """Nor any module of a command."""
    modules = modules_after(statement)

    assert "click" in modules
    assert modules & (HEAVY | {"msgspec", "rich", "asyncio"}) == set()
    assert {name for name in modules if name.startswith("app.")} == {"app.cli", "app.cli.root", "app.cli.lazy"}


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_take_no_time(option: str):
    """Processor time, which other processes do not change, of the best of some runs."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "app", option], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(5)) < MOST_SECONDS


@cache
def imported() -> dict[str, set[str]]:
    """Return the heavy libraries that each command's module imports."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        modules = pool.map(lambda name: modules_after(f"import app.cli.{name}"), MAY_IMPORT)
    return {name: found & HEAVY for name, found in zip(MAY_IMPORT, modules, strict=True)}


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_a_command_imports_only_what_it_needs(name: str):
    """An import that comes along costs every use of the command."""
    assert imported()[name] - MAY_IMPORT[name] == set()


def lazy_groups() -> list[tuple[str, LazyGroup]]:
    return [(path, group) for path, group in tree.groups() if isinstance(group, LazyGroup)]


def test_every_module_of_a_command_is_on_the_list():
    """A new one says what it may import."""
    modules = {entry.module for _, group in lazy_groups() for entry in group.commands.table.values()}

    assert modules == {f"app.cli.{name}" for name in MAY_IMPORT}


def test_short_helps_of_the_tables_are_those_of_the_commands():
    """They are written twice, so that the first can be shown without importing the second."""
    tables = [(path, name, group) for path, group in lazy_groups() for name in group.commands.table]
    shown = {(path, name): group.commands.short_help(name, 200) for path, name, group in tables}

    assert {path for path, _ in shown} == {"", "db", "legacy"}
    assert shown == {(path, name): group.commands[name].get_short_help_str(200) for path, name, group in tables}


def test_the_help_lists_every_command():
    """With its text, and the groups among them."""
    shown = CliRunner().invoke(main, ["--help"]).output

    assert "  erase        Erase all data of one person.\n" in shown
    assert "  db           Migrate, check and copy the database.\n" in shown
    assert [name for name in main.commands if f"\n  {name} " not in shown] == []


def test_the_help_of_each_command_describes_its_arguments():
    """Whatever is run, the help ends well and starts with how it is used."""
    for path in tree.leaves():
        result = CliRunner().invoke(main, [*path.split(), "--help"])
        assert (result.exit_code, result.output.startswith(f"Usage: main {path} ")) == (0, True), path


def test_every_help_is_a_sentence():
    """Of commands, groups and options alike."""
    commands = [("", main), *tree.groups(), *tree.leaves().items()]
    helps = {path: command.help or "" for path, command in commands}
    options = {
        f"{path} {option.opts[0]}": option.help
        for path, command in commands
        for option in command.params
        if isinstance(option, click.Option) and option.help is not None
    }

    assert [path for path, text in {**helps, **options}.items() if not text.endswith((".", "removed.", ")."))] == []


def test_the_version_is_that_of_the_distribution():
    result = CliRunner().invoke(main, ["--version"])

    assert (result.exit_code, result.output) == (0, f"cmem-server, version {VERSION}\n")


def test_an_unknown_command_is_refused():
    """Also in a lazy group of a group."""
    for arguments in (["nonsense"], ["db", "nonsense"]):
        result = CliRunner().invoke(main, arguments)
        assert (result.exit_code, "No such command 'nonsense'" in result.output) == (2, True)
