"""The architecture as a test: which package may import which, and which library is known where."""

import ast
import tomllib

import pytest

from tests import ROOT
from tests.modules import APP, MODULES, Module, modules_below

LEAVES = {"retrieval", "errors", "caller", "clock", "version", "parent_watchdog"}
BELOW = {
    "__main__": {"cli"},
    "cli": {"processes", "main", "services", "store", "vectors", "vector_index", "legacy", "settings", "logs"},
    "processes": {"main", "services", "store", "vectors", "vector_index", "settings", "logs"},
    "main": {"api", "services", "store", "vectors", "vector_index", "llm", "settings", "logs"},
    "vector_index": {"vectors", "store", "settings"},
    "api": {"services", "store", "vectors"},
    "services": {"store", "vectors", "llm", "legacy.shapes"},
    "vectors": {"store"},
    "store": set(),
    "llm": set(),
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
"""What each package may import, apart from itself and the leaves. No front door imports another."""
FRONT_DOORS = {"api", "cli"}
SERVICE_TOPICS = (
    "shared",
    "quotas",
    "audit",
    "projects",
    "identity",
    "memories",
    "search",
    "deletion",
    "transfer",
    "operations",
    "backup",
)
"""A topic of services imports only topics to the left of it."""
LIBRARY_WALLS = {
    "chromadb": ("app.vectors.chroma",),
    "chromadb_rust_bindings": ("app.vectors.chroma",),
    "httpx": ("app.vectors", "app.llm"),
    "jinja2": ("app.web",),
    "litestar": ("app.api", "app.main", "app.processes"),
    "mcp": ("app.mcp",),
    "psycopg": ("app.store", "app.cli.console"),
    "sqlite3": ("app.store", "app.legacy", "app.vectors", "app.cli.console"),
    "uvicorn": ("app.processes",),
}
"""The only places where a library is known: everything else would work as well with another one."""
ONLY_THROUGH_ITS_BINDINGS = {"chromadb"}
"""Its bindings run the server, and its client has no time limits: the package itself is never imported."""


def _may_import(importer: str, imported: str) -> bool:
    allowed = BELOW[importer] | (LEAVES if importer not in LEAVES else set()) | {importer}
    return any(f"{imported}.".startswith(f"app.{package}.") for package in allowed)


def test_imports_point_down():
    """No package imports one above or beside it."""
    wrong = [
        (module.name, imported)
        for module in MODULES
        for imported in module.imports()
        if imported.startswith("app.") and not _may_import(module.package, imported)
    ]

    assert wrong == []


def test_every_package_is_on_the_map():
    """A new package is a decision: it gets its place among the others."""
    assert {module.package for module in MODULES} - {"app"} == BELOW.keys()


def test_no_front_door_imports_another():
    """What two doors need belongs below both."""
    assert [door for door in FRONT_DOORS if BELOW[door] & (FRONT_DOORS - {door})] == []


def test_every_service_belongs_to_a_topic():
    """A service module outside a topic would have no place in the order."""
    topics = {module.topic for module in MODULES if module.package == "services"} - {None}
    outside = [path.name for path in (APP / "services").glob("*.py") if path.name != "__init__.py"]

    assert (topics, outside) == (set(SERVICE_TOPICS), [])


def _topic_arrows(module: Module) -> list[str]:
    if module.topic is None:
        return []
    allowed = SERVICE_TOPICS[: SERVICE_TOPICS.index(module.topic) + 1]
    imported = [name for name in module.imports() if name.startswith("app.services.")]
    return [f"{module.name} -> {name}" for name in imported if name.split(".")[2] not in allowed]


def test_service_topics_import_in_one_order():
    """Memories know projects, and never the other way round."""
    assert [arrow for module in MODULES for arrow in _topic_arrows(module)] == []


def test_migrations_import_nothing_of_the_app():
    """A migration is frozen: what it needs of the app today may be gone tomorrow."""
    frozen = [module for module in modules_below(ROOT / "migrations") if module.path.parent.name != "migrations"]

    assert frozen
    assert [(each.name, name) for each in frozen for name in each.imports() if name.startswith("app")] == []


def _users(attribute: str) -> set[str]:
    """Return the modules in whose code a name or attribute appears."""
    return {
        module.name
        for module in MODULES
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.Name) and node.id == attribute)
        or (isinstance(node, ast.Attribute) and node.attr == attribute)
    }


@pytest.mark.parametrize("reader", ["environ", "getenv", "environb"])
def test_only_settings_reads_the_environment(reader: str):
    """Lower packages get values: what decides them is written in one place."""
    # these pass it to child processes, changed where a child needs it
    pass_it_on = {"app.vectors.chroma.server", "app.processes.supervisor", "app.store.backup.programs"}
    assert _users(reader) <= {"app.settings"} | pass_it_on


def _is_within(name: str, places: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{place}.") for place in places)


def _dependencies() -> str:
    return "\n".join(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"])


@pytest.mark.parametrize("library", LIBRARY_WALLS)
def test_a_library_is_imported_in_its_own_place_only(library: str):
    """Imports count, and so do imports in program texts that are run in a process of their own."""
    importers = {module.name for module in MODULES if library in module.libraries()}

    assert {name for name in importers if not _is_within(name, LIBRARY_WALLS[library])} == set()


@pytest.mark.parametrize("library", LIBRARY_WALLS)
def test_a_wall_has_something_behind_it(library: str):
    """A wall around a library that nobody imports would pass whatever happens, and so would one that admits nobody.

    A library that is not yet a dependency must not be imported at all.
    """
    importers = {module.name for module in MODULES if library in module.libraries()}
    is_used = library not in {"jinja2", "mcp"} or library in _dependencies()

    assert LIBRARY_WALLS[library]
    assert bool(importers) == (is_used and library not in ONLY_THROUGH_ITS_BINDINGS)


@pytest.mark.parametrize("word", ["bm25", "rank"])
def test_full_text_never_scores(word: str):
    """FTS5's own scores depend on every team's rows: another team would change this team's order."""
    queries = [
        (module.name, node.value)
        for module in MODULES
        if module.package in {"store", "services"}
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "SELECT" in node.value
    ]

    assert queries
    assert [(name, sql) for name, sql in queries if word in sql.lower().replace("(", " ").split()] == []
