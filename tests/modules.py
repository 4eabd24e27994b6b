"""The modules of app/ as the guards read them: names, imports, and source trees, parsed once."""

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests import ROOT

APP: Final = ROOT / "app"
_IMPORT_IN_A_STRING: Final = re.compile(r"^\s*(?:import|from)\s+([\w.]+)", re.MULTILINE)


@dataclass(frozen=True)
class Module:
    """A file of app/ under its dotted name, e.g. `app.services.search.engine`."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        """Return its first-level package or module, e.g. `services`."""
        return self.name.removeprefix("app.").split(".")[0]

    @property
    def topic(self) -> str | None:
        """Return its topic within services, e.g. `search`."""
        parts = self.name.split(".")
        return parts[2] if parts[:2] == ["app", "services"] and len(parts) > 2 else None

    def imports(self) -> Iterator[str]:
        """Yield what it imports, as full names: `from app.store import x` is `app.store.x`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}: relative imports hide where an arrow points"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    def libraries(self) -> set[str]:
        """Return the top-level packages it imports, also in program texts that it runs in another process."""
        programs = [
            match
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            for match in _IMPORT_IN_A_STRING.findall(node.value)
        ]
        return {name.split(".")[0] for name in [*self.imports(), *programs]}


def modules_below(folder: Path) -> list[Module]:
    """Read every module below a folder of the checkout."""
    return [_module(path) for path in sorted(folder.rglob("*.py"))]


@functools.cache
def _module(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(part for part in parts if part != "__init__")
    return Module(name, path, ast.parse(path.read_text(encoding="utf-8")))


MODULES: Final = modules_below(APP)
