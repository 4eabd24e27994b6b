"""Test databases: an empty one at head for each folder, of either dialect."""

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Protocol

from app.store.engines import Dialect
from app.store.schema import migrations, postgresql
from tests.postgresql import OWNER, SERVER, Cluster


class Databases(Protocol):
    """Creates databases of one dialect, one per folder."""

    dialect: ClassVar[Dialect]

    def url(self, folder: Path) -> str:
        """Return the URL of a folder's database, which is created at head if needed."""

    def owner_url(self, folder: Path) -> str:
        """Return the URL of the same database for the role that owns its tables."""

    def settings(self, folder: Path) -> dict[str, str]:
        """Return the settings with which a server with that data folder uses its database."""

    def initial_settings(self, folder: Path) -> dict[str, str]:
        """Return the settings of the first process in a folder, which creates the file if it is SQLite."""

    def unmigrated_url(self, folder: Path) -> str:
        """Return the owner's URL of a database that has no table yet."""

    def drop(self, folder: Path) -> None:
        """Drop the database of a folder, unless it is a file inside the folder."""


class SqliteDatabases:
    """Copies of one file that the real migrations created."""

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

    def initial_settings(self, folder: Path) -> dict[str, str]:
        return {}

    def unmigrated_url(self, folder: Path) -> str:
        return f"sqlite:///{folder / 'new' / 'cmem.db'}"

    def drop(self, folder: Path) -> None:
        pass


class PostgresqlDatabases:
    """Copies of one database that the real migrations created; the server's role owns nothing in them."""

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

    def initial_settings(self, folder: Path) -> dict[str, str]:
        return self.settings(folder)

    def unmigrated_url(self, folder: Path) -> str:
        return self._url(folder, OWNER, "template0")

    def drop(self, folder: Path) -> None:
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
def database_url(databases: Databases, folder: Path) -> Iterator[str]:
    """Yield the URL of a folder's database, which is dropped at the end."""
    yield databases.url(folder)
    databases.drop(folder)
