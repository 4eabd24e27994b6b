"""A database with a project, its memories and a search engine."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.caller import Caller, server_owner
from app.services.identity import teams
from app.services.memories import memories
from app.services.projects import projects
from app.services.search.engine import SearchEngine
from app.services.search.query import SearchParams
from app.services.search.results import SearchResults
from app.store.database import Database
from app.store.fulltext import dialects
from app.store.records import Memory
from tests.databases import Databases, database_url


@dataclass(frozen=True)
class Library:
    """A database with one project, accessed by the owner of its team."""

    database: Database
    caller: Caller
    project_id: str
    engine: SearchEngine

    def remember(self, narrative: str | None = None, **fields: Any) -> Memory:
        """Store a memory in the project."""
        return self.remember_all([{"narrative": narrative, **fields}])[0]

    def remember_all(self, rows: list[dict[str, Any]]) -> list[Memory]:
        """Store memories in one transaction."""
        defaults = {"project_id": self.project_id, "kind": "manual", "type": "manual"}
        with self.database.write() as connection:
            added = [memories.add(connection, self.caller, memories.NewMemory(**{**defaults, **row})) for row in rows]
            return [memories.get(connection, self.caller, memory.id) for memory, _ in added]

    def ask(self, query: str | None, **options: Any) -> SearchResults:
        """Search the project."""
        params = SearchParams(**{"project_ids": (self.project_id,), "query": query, **options})
        return self.engine.search(self.database, self.caller, params)

    def narratives(self, query: str | None, **options: Any) -> list[str | None]:
        """Return the narratives of the search results, in order."""
        return [hit.memory.narrative for hit in self.ask(query, **options).hits]

    def add_project(self, name: str) -> str:
        """Create another project in the team and return its id."""
        with self.database.write() as connection:
            return projects.create(connection, self.caller, name=name).id

    def add_team(self, name: str) -> Caller:
        """Create another team and return its owner."""
        with self.database.write() as connection:
            return server_owner().within(teams.create(connection, server_owner(), name=name).id)


@contextmanager
def opened(databases: Databases, folder: Path) -> Iterator[Library]:
    """Yield an empty database in a folder, with a team `default` and a project `library`."""
    with database_url(databases, folder) as url, closing(Database(url)) as database:
        with database.write() as connection:
            caller = server_owner().within(teams.create(connection, server_owner(), name="default").id)
            project_id = projects.create(connection, caller, name="library").id
        engine = SearchEngine(dialects.of(database.dialect), recency_half_life_days=90.0)
        yield Library(database, caller, project_id, engine)
