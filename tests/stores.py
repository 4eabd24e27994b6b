"""The databases of tests: empty ones at head, of each dialect, by the folder that they belong to."""

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Protocol

from app.store.engines import Dialect
from app.store.schema import migrations, postgresql
from tests.postgresql import OWNER, SERVER, Cluster


class Stores(Protocol):
    """Where tests get their databases from."""

    dialect: ClassVar[Dialect]

    def url(self, folder: Path) -> str:
        """Return the database that belongs to a folder, made at head when there is none."""

    def owner_url(self, folder: Path) -> str:
        """Return the same database with the rights of who owns its tables."""

    def settings(self, folder: Path) -> dict[str, str]:
        """Return the settings with which a server over that folder uses its database."""

    def first_settings(self, folder: Path) -> dict[str, str]:
        """Return the settings with which a process starts there as the first of all: SQLite's file is made by it."""

    def nothing(self, folder: Path) -> str:
        """Return where a database of a folder is to be made, for whoever migrates it: there is no table yet."""

    def forget(self, folder: Path) -> None:
        """Drop the database of a folder, unless it goes with the folder itself."""


class SqliteStores:
    """Copies of one file, made by the real migrations once."""

    dialect: ClassVar[Dialect] = "sqlite"

    def __init__(self, template: Path) -> None:
        self.template = template
        migrations.upgrade(f"sqlite:///{template}")

    def url(self, folder: Path) -> str:
        path = folder / "cmem.db"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.template, path)
        return f"sqlite:///{path}"

    def owner_url(self, folder: Path) -> str:
        return self.url(folder)

    def settings(self, folder: Path) -> dict[str, str]:
        self.url(folder)
        return {}

    def first_settings(self, folder: Path) -> dict[str, str]:
        return {}

    def nothing(self, folder: Path) -> str:
        return f"sqlite:///{folder / 'new' / 'cmem.db'}"

    def forget(self, folder: Path) -> None:
        pass


class PostgresqlStores:
    """Copies of one database, made by the real migrations once; the server's role owns nothing in them."""

    dialect: ClassVar[Dialect] = "postgresql"
    _numbers = itertools.count()

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._names: dict[Path, str] = {}
        self._template = self._new_name()
        cluster.create(self._template)
        owner, server = (cluster.url(role, self._template) for role in (OWNER, SERVER))
        migrations.upgrade(owner)
        postgresql.grant(owner, server)

    def url(self, folder: Path) -> str:
        return self._url(folder, SERVER, self._template)

    def owner_url(self, folder: Path) -> str:
        return self._url(folder, OWNER, self._template)

    def settings(self, folder: Path) -> dict[str, str]:
        return {"database_url": self.url(folder), "database_admin_url": self.owner_url(folder)}

    def first_settings(self, folder: Path) -> dict[str, str]:
        return self.settings(folder)

    def nothing(self, folder: Path) -> str:
        return self._url(folder, OWNER, "template0")

    def forget(self, folder: Path) -> None:
        if (name := self._names.pop(folder, None)) is not None:
            self.cluster.drop(name)

    def _url(self, folder: Path, role: str, template: str) -> str:
        if folder not in self._names:
            self._names[folder] = self._new_name()
            self.cluster.create(self._names[folder], template)
        return self.cluster.url(role, self._names[folder])

    def _new_name(self) -> str:
        return f"cmem_{next(self._numbers)}"


@contextmanager
def of_folder(stores: Stores, folder: Path) -> Iterator[str]:
    """Yield the database of a folder, dropped in the end."""
    yield stores.url(folder)
    stores.forget(folder)
