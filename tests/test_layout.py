"""The layout as a test: how long files and functions are, how full a folder is, and which names are taken."""

import ast
import statistics
from collections import Counter, defaultdict
from pathlib import Path

from tests import ROOT
from tests.modules import MODULES

LONGEST_FILE_LINES = 400
LONGEST_FUNCTION_LINES = 60
MEDIAN_FUNCTION_LINES = 10
MODULES_IN_A_FOLDER = 12
FULLER_FOLDERS = {
    "app/api/routes": "one module a noun of the URL",
    "app/cli": "one module a command",
    "app/retrieval": "pure functions, each with one subject",
}


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_no_file_is_too_long():
    """A file of more than four hundred lines becomes a package; tests are read as well."""
    files = [path for folder in ("app", "tests") for path in (ROOT / folder).rglob("*.py")]
    lengths = {path.relative_to(ROOT).as_posix(): _lines(path) for path in files}

    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE_LINES} == {}


def _function_lines() -> dict[str, int]:
    return {
        f"{module.name}.{node.name}:{node.lineno}": node.end_lineno - node.lineno + 1
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    }


def test_functions_are_short():
    """Half of all functions are under ten lines, and none is longer than a screen."""
    lines = _function_lines()

    assert statistics.median(lines.values()) < MEDIAN_FUNCTION_LINES
    assert {name: count for name, count in lines.items() if count > LONGEST_FUNCTION_LINES} == {}


def test_no_folder_holds_too_many_modules():
    """A folder is a list that somebody reads: from thirteen on it wants a second level."""
    counts = Counter(module.path.parent for module in MODULES if module.path.name != "__init__.py")
    full = {
        folder.relative_to(ROOT).as_posix(): count for folder, count in counts.items() if count > MODULES_IN_A_FOLDER
    }

    assert {folder: count for folder, count in full.items() if folder not in FULLER_FOLDERS} == {}


def test_a_class_name_is_defined_once():
    """Two classes of one name are two meanings of one word."""
    places = defaultdict(list)
    for module in MODULES:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module.name)

    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}
