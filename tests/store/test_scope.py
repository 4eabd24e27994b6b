"""The wall as a test on the syntax tree: rows of a team are selected through owned(), or not at all."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.store.scope import TENANT_TABLES
from tests import ROOT

APP = ROOT / "app"
DOORS = {"owned", "owned_template", "every"}
MAY_USE_EVERY = {
    "app.services.audit.pruning",  # age alone decides, in the log of every team
    "app.services.identity.bootstrap",  # whether there is any team at all
    "app.services.operations.doctor",  # looks at the whole server
    "app.services.deletion.erasure",  # what waits for the mirror, of memories that were found through owned()
    "app.services.operations.gauges",  # numbers of the server as a whole, for whoever runs it
    "app.services.transfer.importing",  # whether an id of an import is somebody's already
    "app.services.operations.fulltext_check",  # checks the whole file
    "app.services.identity.keys",  # who is behind a credential, before there is a caller
    "app.services.operations.maintenance",  # what is due, for the server as a whole
    "app.services.memories.context_text",  # what the memories of a session lend each other
    "app.services.operations.jobs",  # the runner takes whatever waits
    "app.services.deletion.retention",  # the rules of all projects, each then applied within its team
    "app.services.identity.teams",  # what server:admin sees
    "app.services.quotas.usage",  # which of the teams that were counted there still are
    "app.store.postgresql_copy.source",  # copies a whole database
    "app.store.postgresql_copy.target",  # whether a database is empty
    "app.store.outbox",  # the mirror of all teams
}
MAY_WRITE_SQL = ("app.store.",)
"""Full text and maintenance say in SQL what Core cannot; full text takes a Scope in each of its functions."""
_FROM_A_TEAMS_TABLE = re.compile(rf"\b(FROM|JOIN)\s+({'|'.join(sorted(TENANT_TABLES))})\b", re.IGNORECASE)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(APP.parent).with_suffix("").parts)


MODULES = {name_of(path): path for path in sorted(APP.rglob("*.py")) if name_of(path) != "app.store.scope"}


def called(node: ast.AST) -> str | None:
    """Return the name of what a call calls, without its module."""
    if not isinstance(node, ast.Call):
        return None
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", None)


def tenant_names(tree: ast.Module) -> set[str]:
    """Return the names by which a module knows tables of teams: imported, renamed, aliased, or their columns."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "app.store.models":
            names |= {alias.asname or alias.name for alias in node.names if alias.name in TENANT_TABLES}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            derived = [inner for inner in ast.walk(node.value) if called(inner) in ("alias", "columns")]
            if any(is_of_team(inner, names) for inner in derived):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def is_of_team(node: ast.AST, names: set[str]) -> bool:
    """Say whether an expression names a table of a team outside of the doors."""
    if starts_at_a_door(node):
        return False
    if isinstance(node, ast.Name) and node.id in names:
        return True
    if isinstance(node, ast.Attribute) and node.attr in TENANT_TABLES and ast.unparse(node.value).endswith("models"):
        return True
    return any(is_of_team(child, names) for child in ast.iter_child_nodes(node))


def starts_at_a_door(node: ast.AST) -> bool:
    """Say whether a chain of methods begins with owned(), as in owned(…).where(…).exists()."""
    while isinstance(node, ast.Attribute | ast.Call):
        if called(node) in DOORS:
            return True
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return False


def open_selects(source: str) -> Iterator[str]:
    """Yield the selects of rows of teams that do not start at a door."""
    tree = ast.parse(source)
    names = tenant_names(tree)
    for node in ast.walk(tree):
        if called(node) not in ("select", "select_from") or starts_at_a_door(node):
            continue
        if is_of_team(node, names):
            yield ast.unparse(node)


@pytest.mark.parametrize("module", MODULES)
def test_no_stranger_slips_in_by_a_select_without_owned(module: str):
    """select() of a team's table is the hole that every forgotten condition fell through."""
    assert list(open_selects(MODULES[module].read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("module", [name for name in MODULES if not name.startswith(MAY_WRITE_SQL)])
def test_no_stranger_slips_in_by_sql_written_by_hand(module: str):
    """Text is not looked through by the test above, so there is none."""
    texts = [
        node.value
        for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _FROM_A_TEAMS_TABLE.search(node.value)
    ]

    assert [one for one in texts if "SELECT" in one] == []


def test_few_modules_look_past_the_stranger_wall():
    """every() is for the server itself; whoever uses it is on this list with a reason."""
    users = {
        module
        for module, path in MODULES.items()
        if any(called(node) == "every" for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    }

    assert users == MAY_USE_EVERY


@pytest.mark.parametrize(
    "hole",
    [
        "from app.store.models import projects\nselect(projects)",
        "from app.store.models import projects as p\nselect(p.c.id).where(p.c.slug == 'x')",
        "from app.store import models\nselect(models.memory_items.c.id)",
        "from app.store.models import memory_items\nm = memory_items.alias('m')\nselect(m.c.seq)",
        "from app.store.models import projects\nprojects.select()",
        "from app.store.models import projects\nselect(func.count()).select_from(projects)",
        "from app.store.models import projects, api_keys\nselect(owned(api_keys, caller).exists(), projects.c.id)",
    ],
)
def test_the_test_finds_what_it_looks_for(hole: str):
    """Each way in which a select could miss the door."""
    assert list(open_selects(hole)) != []


@pytest.mark.parametrize(
    "sound",
    [
        "from app.store.models import projects\nowned(projects, caller, projects.c.id).where(projects.c.slug == 'x')",
        "from app.store.models import projects\nselect(owned(projects, caller).where(projects.c.id == 1).exists())",
        "from app.store.models import idempotency_records\nselect(idempotency_records)",
    ],
)
def test_the_test_lets_through_what_is_sound(sound: str):
    """Otherwise it would be switched off."""
    assert list(open_selects(sound)) == []
