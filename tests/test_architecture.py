"""The house as a test: which room may import which, who reads the environment, how long things are."""

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

APP = ROOT / "app"
LEAVES = {"retrieval", "errors", "caller", "clock", "version", "parent_watchdog"}
BELOW = {
    "__main__": {"cli"},
    "cli": {"processes", "main", "api", "services", "store", "vectors", "vector_index", "legacy", "settings", "logs"},
    "processes": {"main", "api", "services", "store", "vectors", "vector_index", "settings", "logs"},
    "main": {"api", "services", "store", "vectors", "vector_index", "retrieval", "settings", "logs"},
    "vector_index": {"vectors", "store", "settings"},
    "api": {"services", "store", "vectors"},
    "services": {"store", "vectors", "legacy.shapes"},
    "vectors": {"store"},
    "store": set(),
    "legacy": set(),
    "settings": set(),
    "logs": set(),
    "retrieval": set(),
    "errors": set(),
    "caller": {"errors"},
    "clock": set(),
    "version": set(),
    "parent_watchdog": set(),
}
"""What each room may import besides itself and the leaves. `cli` starts the server and prints its contract."""
MODULES = sorted(path for path in APP.rglob("*.py"))
LONGEST_FILE_LINES = 400
MEDIAN_FUNCTION_LINES = 10


def _room(module: str) -> str:
    return module.removeprefix("app.").split(".")[0]


def _name(path: Path) -> str:
    parts = path.relative_to(APP.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _imported(path: Path) -> Iterator[str]:
    """Yield every module that a file imports; of `from app.store import x` both app.store and app.store.x."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where an arrow points"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _may_import(importer: str, imported: str) -> bool:
    allowed = BELOW[importer] | (LEAVES if importer not in LEAVES else set()) | {importer}
    return any(f"{imported}.".startswith(f"app.{room}.") for room in allowed)


def test_imports_point_down():
    """No room imports one above or beside it."""
    arrows = [
        (_name(path), imported) for path in MODULES for imported in _imported(path) if imported.startswith("app.")
    ]
    wrong = [arrow for arrow in arrows if not _may_import(_room(arrow[0]), arrow[1])]

    assert wrong == []


def test_every_room_is_on_the_map():
    """A new room is a decision: it gets its place among the others."""
    assert {_room(_name(path)) for path in MODULES} - {"app"} == BELOW.keys()


def test_the_migrations_import_nothing_of_the_app():
    """A migration is frozen: what it needs of the app today may be gone tomorrow."""
    frozen = sorted((APP.parent / "migrations").glob("*/*.py"))

    assert frozen
    assert [(path.name, name) for path in frozen for name in _imported(path) if name.startswith("app")] == []


def _uses(attribute: str) -> list[str]:
    """Return the modules in whose code a name or attribute appears."""
    found = []
    for path in MODULES:
        names = {
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Name | ast.Attribute)
        }
        if attribute in names:
            found.append(_name(path))
    return found


@pytest.mark.parametrize("reader", ["environ", "getenv", "environb"])
def test_nobody_reads_the_environment_but_settings(reader: str):
    """Lower rooms get values: what decides them is written in one place."""
    # to their children, with what differs for those, or without what would change a child's mind
    hands_it_on = {"app.vectors.chroma.server", "app.processes.supervisor", "app.store.backup.programs"}
    assert set(_uses(reader)) <= {"app.settings"} | hands_it_on


def test_chroma_is_imported_in_its_own_room_only():
    """Everybody else knows vectors, and not the library that keeps them."""
    importers = {_name(path) for path in MODULES for name in _imported(path) if name.split(".")[0] == "chromadb"}

    assert {name for name in importers if not name.startswith("app.vectors.chroma")} == set()


@pytest.mark.parametrize("library", ["litestar", "uvicorn"])
def test_http_is_known_at_the_front_only(library: str):
    """Services and everything below them would serve another front door as well."""
    importers = {_room(_name(path)) for path in MODULES for name in _imported(path) if name.split(".")[0] == library}

    assert importers <= {"main", "api", "cli", "processes"}


def test_no_file_is_too_long():
    """What passes four hundred lines becomes a package."""
    lengths = {_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}

    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE_LINES} == {}


def test_functions_are_short():
    """Half of all functions fit into a glance."""
    lines = [
        node.end_lineno - node.lineno + 1
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    ]

    assert statistics.median(lines) < MEDIAN_FUNCTION_LINES


@pytest.mark.parametrize("word", ["bm25", "rank"])
def test_full_text_never_scores(word: str):
    """FTS5's own scores depend on every team's rows: a stranger would change another's order."""
    queries = [
        (_name(path), node.value)
        for path in MODULES
        if path.is_relative_to(APP / "store") or path.is_relative_to(APP / "services")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "SELECT" in node.value
    ]

    assert [(name, sql) for name, sql in queries if word in sql.lower().replace("(", " ").split()] == []
