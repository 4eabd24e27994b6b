"""Twins: every module of app/ has a test of its own name, or a line here with its test, or with why it has none."""

import ast
import functools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests import ROOT
from tests.modules import APP, MODULES, Module, modules_below

TESTED_ELSEWHERE: Final = {
    "app.main": "tests/api/test_daily_maintenance.py",
    "app.vector_index": "tests/api/routes/test_vectors.py",
    "app.version": "tests/cli/test_root.py",
    # the HTTP API, as its clients see it
    "app.api.router": "tests/api/test_route_matrix.py",
    "app.api.http.authentication": "tests/api/routes/test_auth.py",
    "app.api.http.monthly_quota": "tests/api/http/test_rate_limiting.py",
    "app.api.http.request": "tests/api/http/test_request_bodies.py",
    "app.api.http.request_recorder": "tests/api/routes/test_usage.py",
    "app.api.middleware.audit": "tests/api/routes/test_audit.py",
    "app.api.middleware.cors": "tests/api/middleware/test_request_context.py",
    "app.api.middleware.request_checks": "tests/api/middleware/test_request_context.py",
    "app.api.openapi.document": "tests/api/openapi/test_contract.py",
    "app.api.openapi.examples": "tests/api/openapi/test_contract.py",
    "app.api.openapi.parts": "tests/api/openapi/test_contract.py",
    "app.api.routes.metrics": "tests/api/middleware/test_metrics.py",
    # commands, as they are typed
    "app.cli.adopt_vectors": "tests/cli/test_vectors.py",
    "app.cli.console": "tests/cli/test_missing_database.py",
    "app.cli.db_check": "tests/cli/test_db.py",
    "app.cli.db_current": "tests/cli/test_db.py",
    "app.cli.openapi": "tests/api/openapi/test_contract.py",
    # processes, of which a test needs several
    "app.processes.listener": "tests/processes/test_workers.py",
    "app.processes.supervisor": "tests/processes/test_workers.py",
    "app.processes.worker": "tests/processes/test_workers.py",
    # services whose rules are those of a route or command
    "app.services.audit.entries": "tests/api/routes/test_audit.py",
    "app.services.deletion.bulk_delete": "tests/api/routes/test_deletion.py",
    "app.services.identity.teams": "tests/api/routes/test_teams.py",
    "app.services.memories.listing": "tests/api/routes/test_memory_lists.py",
    "app.services.operations.doctor": "tests/cli/test_doctor.py",
    "app.services.operations.gauges": "tests/api/middleware/test_metrics.py",
    "app.services.operations.metrics": "tests/api/middleware/test_metrics.py",
    "app.services.operations.vectors": "tests/api/routes/test_vectors.py",
    "app.services.projects.events": "tests/api/routes/test_events.py",
    "app.services.projects.projects": "tests/api/routes/test_projects.py",
    "app.services.projects.sessions": "tests/api/routes/test_sessions.py",
    "app.services.projects.stats": "tests/api/routes/test_projects.py",
    "app.services.quotas.redis_counter": "tests/api/http/test_redis_rate_limiting.py",
    "app.services.search.timeline": "tests/api/routes/test_timeline.py",
    "app.services.shared.idempotency": "tests/api/http/test_idempotency.py",
    # parts of a whole that is tested as one
    "app.legacy.shapes": "tests/legacy/test_reader.py",
    "app.retrieval.stopwords": "tests/retrieval/test_text.py",
    "app.services.deletion.retention_rules": "tests/services/deletion/test_retention.py",
    "app.services.memories.llm_chunker": "tests/services/memories/test_conversations.py",
    "app.services.search.lexical": "tests/services/search/test_engine.py",
    "app.services.search.query": "tests/services/search/test_engine.py",
    "app.services.search.semantic": "tests/services/search/test_hybrid.py",
    "app.services.transfer.exporting": "tests/services/transfer/test_round_trip.py",
    "app.services.transfer.importing": "tests/services/transfer/test_round_trip.py",
    "app.services.transfer.legacy_targets": "tests/services/transfer/test_legacy_import.py",
    "app.services.transfer.transfer_records": "tests/services/transfer/test_round_trip.py",
    "app.store.prepared": "tests/store/engines/test_pipelining.py",
    "app.store.backup.archive": "tests/services/backup/test_backup.py",
    "app.store.backup.dialects": "tests/services/backup/test_backup.py",
    "app.store.backup.postgresql": "tests/services/backup/test_backup_postgresql.py",
    "app.store.backup.sqlite": "tests/services/backup/test_backup.py",
    "app.store.engines.postgresql": "tests/store/engines/test_postgresql_outages.py",
    "app.store.engines.sqlite": "tests/store/test_database.py",
    "app.store.fulltext.filtering": "tests/store/fulltext/test_search.py",
    "app.store.fulltext.postgresql": "tests/store/fulltext/test_dialects.py",
    "app.store.fulltext.postings": "tests/store/fulltext/test_search.py",
    "app.store.fulltext.sqlite": "tests/store/fulltext/test_dialects.py",
    "app.store.maintenance.dialects": "tests/store/maintenance/test_maintenance.py",
    "app.store.maintenance.postgresql": "tests/store/maintenance/test_maintenance.py",
    "app.store.maintenance.postgresql_checks": "tests/store/maintenance/test_checks.py",
    "app.store.maintenance.sqlite": "tests/store/maintenance/test_maintenance.py",
    "app.store.maintenance.sqlite_checks": "tests/store/maintenance/test_checks.py",
    "app.store.maintenance.sqlite_compaction": "tests/store/maintenance/test_maintenance.py",
    "app.store.maintenance.sqlite_faults": "tests/store/maintenance/test_sqlite_rebuilding.py",
    "app.store.postgresql_copy.fingerprint": "tests/services/backup/test_copy_to_postgresql.py",
    "app.store.postgresql_copy.plan": "tests/services/backup/test_copy_to_postgresql.py",
    "app.store.postgresql_copy.source": "tests/services/backup/test_copy_to_postgresql.py",
    "app.store.postgresql_copy.target": "tests/services/backup/test_copy_to_postgresql.py",
    "app.store.schema.objects": "tests/store/schema/test_migrations.py",
    "app.store.schema.postgresql": "tests/store/schema/test_migrations.py",
    "app.store.schema.sqlite": "tests/store/schema/test_migrations.py",
    "app.vectors.index": "tests/vectors/sync/test_mirror_in_background.py",
    "app.vectors.chroma.vacuum": "tests/vectors/chroma/test_server.py",
    "app.vectors.query.staleness": "tests/vectors/sync/test_mirror.py",
    "app.vectors.remote.index": "tests/vectors/remote/test_client.py",
    "app.vectors.sync.adoption": "tests/services/operations/test_vector_adoption.py",
    "app.vectors.sync.writer": "tests/vectors/sync/test_mirror.py",
}
"""The test of a module that has no twin. The test must reach the module: see `_reached()`."""
WITHOUT_A_TEST: Final = {
    "app.__main__": "an entry point; tests/serving.py starts every server with it",
    "app.store.models": "declarations; tests/cli/test_db.py compares them with a migrated database",
    "app.vectors.chroma.child": "an entry point; tests/vectors/chroma/test_server.py starts and kills it",
    "app.vectors.counters": "declarations; tests/api/middleware/test_metrics.py reads them from /metrics",
}
"""Why nothing tests a module; a test that is named must exist."""
HTTP_FIXTURES: Final = {"server", "start_server", "team", "as_team"}
"""Those of tests/conftest.py that start a server: a test that uses one calls it over HTTP."""

_NAMES: Final = {module.name: module for module in MODULES}
_HELPERS: Final = {module.name: module for module in modules_below(ROOT / "tests")}


def _twin(name: str) -> Path:
    *folders, module = name.removeprefix("app.").split(".")
    return ROOT.joinpath("tests", *folders, f"test_{module}.py")


def _known(imported: str, known: Collection[str]) -> str | None:
    """Return the module that an import of a module, or of a name in it, loads."""
    while imported and imported not in known:
        imported = imported.rpartition(".")[0]
    return imported or None


def _sources(test: Module) -> Iterator[Module]:
    """Yield a test file, what it imports from tests/, and the conftest of its folder, except that of all tests."""
    waiting, seen = [test.name, f"{test.name.rpartition('.')[0]}.conftest"], {"tests.conftest"}
    while waiting:
        name = waiting.pop()
        if name in _HELPERS and name not in seen:
            seen.add(name)
            yield _HELPERS[name]
            waiting += [found for each in _HELPERS[name].imports() if (found := _known(each, _HELPERS))]


def _uses_http(module: Module) -> bool:
    functions = (node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef))
    return any(argument.arg in HTTP_FIXTURES for function in functions for argument in function.args.args)


@functools.cache
def _imported(name: str) -> frozenset[str]:
    """Return the modules of app/ that a module of app/ imports; the commands' names are in tables."""
    if name in {"app.cli", "app.cli.root"}:
        return frozenset(each for each in _NAMES if each.startswith("app.cli."))
    return frozenset(found for each in _NAMES[name].imports() if (found := _known(each, _NAMES)))


def _reached(test: Module) -> set[str]:
    """Return what a test exercises: what it imports, what that imports, and from there on within the same folder.

    Commands and routes are thin: a test of one counts as a test of what it calls.
    """
    sources = list(_sources(test))
    start = {found for source in sources for each in source.imports() if (found := _known(each, _NAMES))}
    if any(_uses_http(source) for source in sources) or any(source.name == "tests.serving" for source in sources):
        start |= {name for name in _NAMES if f"{name}.".startswith(("app.api.", "app.main.", "app.processes."))}
    start |= {found for name in start if name.startswith("app.cli") for found in _imported(name)}
    reached = start.union(*(_imported(name) for name in start))
    waiting = list(reached)
    while waiting:
        name = waiting.pop()
        folder = _NAMES[name].path.parent
        near = {each for each in _imported(name) if _NAMES[each].path.parent == folder} - reached
        reached |= near
        waiting += near
    return reached


def _faults(names: Collection[str], elsewhere: Mapping[str, str], without: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the tables for modules of these names."""
    listed = elsewhere.keys() | without.keys()
    faults = [f"{name}: has no test" for name in names if name not in listed and not _twin(name).exists()]
    faults += [f"{name}: is in both tables" for name in elsewhere.keys() & without.keys()]
    faults += [f"{name}: is gone, and still listed" for name in listed if name not in names]
    faults += [f"{name}: has a twin, and is listed all the same" for name in listed if _twin(name).exists()]
    for name, path in elsewhere.items():
        if not (ROOT / path).is_file():
            faults.append(f"{name}: {path} is gone")
        elif name in names and name not in _reached(_HELPERS[path.removesuffix(".py").replace("/", ".")]):
            faults.append(f"{name}: {path} does not reach it")
    for name, reason in without.items():
        paths = [word.strip(",;") for word in reason.split() if word.startswith("tests/")]
        faults += [f"{name}: {path} is gone" for path in paths if not (ROOT / path).is_file()]
    return faults


MODULE_NAMES: Final = {module.name for module in MODULES if module.path.name != "__init__.py"}


def test_every_module_has_a_test_or_a_reason():
    """Anyone who changes a module finds what to run."""
    assert sorted(_faults(MODULE_NAMES, TESTED_ELSEWHERE, WITHOUT_A_TEST)) == []


@pytest.mark.parametrize(
    ("names", "elsewhere", "without", "fault"),
    [
        ({"app.store.made_up"}, {}, {}, "has no test"),
        (set(), {"app.store.made_up": "tests/store/test_scope.py"}, {}, "is gone, and still listed"),
        (set(), {}, {"app.store.made_up": "constants"}, "is gone, and still listed"),
        ({"app.store.scope"}, {"app.store.scope": "tests/store/test_database.py"}, {}, "has a twin"),
        ({"app.clock"}, {}, {"app.clock": "constants"}, "has a twin"),
        ({"app.store.made_up"}, {"app.store.made_up": "tests/store/test_made_up.py"}, {}, "test_made_up.py is gone"),
        ({"app.store.made_up"}, {}, {"app.store.made_up": "see tests/test_made_up.py"}, "test_made_up.py is gone"),
        ({"app.store.prepared"}, {"app.store.prepared": "tests/legacy/test_origin.py"}, {}, "does not reach it"),
        ({"app.main"}, {"app.main": "tests/services/search/test_engine.py"}, {}, "does not reach it"),
        ({"app.api.router"}, {"app.api.router": "tests/retrieval/test_text.py"}, {}, "does not reach it"),
    ],
)
def test_the_guard_finds_what_is_missing_or_superfluous(
    names: set[str], elsewhere: dict[str, str], without: dict[str, str], fault: str
):
    """With one made-up or misplaced entry each."""
    assert any(fault in each for each in _faults(names, elsewhere, without))


def test_twin_has_the_path_of_its_module():
    """Below tests/ instead of app/."""
    for module in MODULES:
        if module.path.name != "__init__.py":
            expected = ROOT / "tests" / module.path.relative_to(APP).with_name(f"test_{module.path.name}")
            assert _twin(module.name) == expected
