"""A test on the syntax tree: a team's rows are selected through owned(), or not at all."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.store.scope import TENANT_TABLES
from tests import ROOT

APP = ROOT / "app"
SCOPED_SELECTS = {"owned", "owned_template", "unscoped"}
MAY_USE_UNSCOPED = {
    "app.services.audit.pruning",  # deletes by age alone, from the log of every team
    "app.services.identity.bootstrap",  # asks whether there is any team at all
    "app.services.operations.doctor",  # checks the whole server
    "app.services.deletion.erasure",  # outbox entries of memories that were found through owned()
    "app.services.operations.gauges",  # metrics of the whole server
    "app.services.transfer.importing",  # asks whether an imported id exists anywhere
    "app.services.operations.fulltext_check",  # checks the whole database
    "app.services.identity.keys",  # looks up a credential before there is a caller
    "app.services.operations.maintenance",  # finds what is due on the whole server
    "app.services.memories.context_text",  # refreshes the context text of all sessions
    "app.services.operations.jobs",  # the runner takes jobs of any team
    "app.services.deletion.retention",  # reads the rules of all projects, then applies each within its team
    "app.services.identity.teams",  # what server:admin may see
    "app.services.quotas.usage",  # asks which of the counted teams still exist
    "app.store.postgresql_copy.source",  # copies a whole database
    "app.store.postgresql_copy.target",  # asks whether a database is empty
    "app.store.outbox",  # serves the mirror of all teams
}
MAY_WRITE_SQL = ("app.store.",)
"""Full text and maintenance need SQL that Core cannot express; every full-text function takes a SearchScope."""
_FROM_TENANT_TABLE = re.compile(rf"\b(FROM|JOIN)\s+({'|'.join(sorted(TENANT_TABLES))})\b", re.IGNORECASE)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(APP.parent).with_suffix("").parts)


MODULES = {module_name(path): path for path in sorted(APP.rglob("*.py")) if module_name(path) != "app.store.scope"}


def called_name(node: ast.AST) -> str | None:
    """Return the name of the called function, without its module."""
    if not isinstance(node, ast.Call):
        return None
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", None)


def tenant_names(tree: ast.Module) -> set[str]:
    """Return a module's names for tenant tables: imported, renamed or aliased ones, or their columns."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "app.store.models":
            names |= {alias.asname or alias.name for alias in node.names if alias.name in TENANT_TABLES}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            derived = [inner for inner in ast.walk(node.value) if called_name(inner) in ("alias", "columns")]
            if any(mentions_tenant_table(inner, names) for inner in derived):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def mentions_tenant_table(node: ast.AST, names: set[str]) -> bool:
    """Say whether an expression mentions a tenant table outside of a scoped select."""
    if starts_scoped(node):
        return False
    if isinstance(node, ast.Name) and node.id in names:
        return True
    if isinstance(node, ast.Attribute) and node.attr in TENANT_TABLES and ast.unparse(node.value).endswith("models"):
        return True
    return any(mentions_tenant_table(child, names) for child in ast.iter_child_nodes(node))


def starts_scoped(node: ast.AST) -> bool:
    """Say whether a chain of methods begins with owned(), as in owned(…).where(…).exists()."""
    while isinstance(node, ast.Attribute | ast.Call):
        if called_name(node) in SCOPED_SELECTS:
            return True
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return False


def unscoped_selects(source: str) -> Iterator[str]:
    """Yield the selects of tenant rows that do not start with a scoped select."""
    tree = ast.parse(source)
    names = tenant_names(tree)
    for node in ast.walk(tree):
        if called_name(node) not in ("select", "select_from") or starts_scoped(node):
            continue
        if mentions_tenant_table(node, names):
            yield ast.unparse(node)


@pytest.mark.parametrize("module", MODULES)
def test_tenant_rows_are_only_selected_through_owned(module: str):
    """A plain select() of a tenant table is how every forgotten condition came about."""
    assert list(unscoped_selects(MODULES[module].read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("module", [name for name in MODULES if not name.startswith(MAY_WRITE_SQL)])
def test_tenant_rows_are_not_selected_by_handwritten_sql(module: str):
    """The test above does not understand SQL text, so there must be none."""
    texts = [
        node.value
        for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _FROM_TENANT_TABLE.search(node.value)
    ]

    assert [one for one in texts if "SELECT" in one] == []


def test_only_listed_modules_use_unscoped():
    """unscoped() is for the server itself; each module that uses it is listed with a reason."""
    users = {
        module
        for module, path in MODULES.items()
        if any(called_name(node) == "unscoped" for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    }

    assert users == MAY_USE_UNSCOPED


@pytest.mark.parametrize(
    "source",
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
def test_unscoped_selects_are_found(source: str):
    """Every way in which a select could avoid owned()."""
    assert list(unscoped_selects(source)) != []


@pytest.mark.parametrize(
    "source",
    [
        "from app.store.models import projects\nowned(projects, caller, projects.c.id).where(projects.c.slug == 'x')",
        "from app.store.models import projects\nselect(owned(projects, caller).where(projects.c.id == 1).exists())",
        "from app.store.models import idempotency_records\nselect(idempotency_records)",
    ],
)
def test_scoped_selects_are_not_reported(source: str):
    """A guard with false alarms would be switched off."""
    assert list(unscoped_selects(source)) == []
