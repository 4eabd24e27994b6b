"""A store with memories in it, and the questions that tests ask it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.caller import Caller, server_owner
from app.services.identity import teams
from app.services.memories import memories
from app.services.projects import projects
from app.services.search.engine import Asked, Found, Searching
from app.store.database import Database
from app.store.fulltext import dialects
from app.store.records import Memory
from tests.stores import Stores, of_folder


@dataclass(frozen=True)
class Library:
    """One database, asked by the owner of one project."""

    database: Database
    caller: Caller
    project_id: str
    searching: Searching

    def remember(self, narrative: str | None = None, **fields: Any) -> Memory:
        """Store one memory of the project."""
        return self.remember_all([{"narrative": narrative, **fields}])[0]

    def remember_all(self, rows: list[dict[str, Any]]) -> list[Memory]:
        """Store memories in one transaction."""
        standard = {"project_id": self.project_id, "kind": "manual", "type": "manual"}
        with self.database.write() as connection:
            added = [memories.add(connection, self.caller, memories.NewMemory(**{**standard, **row})) for row in rows]
            return [memories.get(connection, self.caller, memory.id) for memory, _ in added]

    def ask(self, query: str | None, **options: Any) -> Found:
        """Search the project."""
        asked = Asked(**{"project_ids": (self.project_id,), "query": query, **options})
        return self.searching.search(self.database, self.caller, asked)

    def narratives(self, query: str | None, **options: Any) -> list[str | None]:
        """Return the narratives of what a search finds, in its order."""
        return [hit.memory.narrative for hit in self.ask(query, **options).hits]

    def add_project(self, name: str) -> str:
        """Make another project of the team and return its id."""
        with self.database.write() as connection:
            return projects.create(connection, self.caller, name=name).id

    def add_team(self, name: str) -> Caller:
        """Make another team and return its owner."""
        with self.database.write() as connection:
            return server_owner().within(teams.create(connection, server_owner(), name=name).id)


@contextmanager
def opened(stores: Stores, folder: Path) -> Iterator[Library]:
    """Open the empty store of a folder, with a team `default` and a project `library`."""
    with of_folder(stores, folder) as url, closing(Database(url)) as database:
        with database.write() as connection:
            caller = server_owner().within(teams.create(connection, server_owner(), name="default").id)
            project_id = projects.create(connection, caller, name="library").id
        searching = Searching(dialects.of(database.dialect), recency_half_life_days=90.0)
        yield Library(database, caller, project_id, searching)
