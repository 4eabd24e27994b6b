"""A database with a vector index, for the tests of indexing."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import text

from app.caller import Caller, server_owner
from app.services.deletion import bulk_delete
from app.services.identity import teams
from app.services.memories import memories
from app.services.projects import projects
from app.store.database import Database
from app.vectors import collection_names
from app.vectors.embedding import Embedder, Vectors
from app.vectors.embedding.minilm import MiniLM
from app.vectors.index import VectorIndex, VectorIndexConfig
from tests.databases import Databases, database_url

MINILM = MiniLM(threads=1)


@dataclass
class Library:
    """One team with a project; `index` indexes it when a test calls it."""

    folder: Path
    url: str
    embedder: Embedder = MINILM
    database: Database = field(init=False)
    caller: Caller = field(init=False)
    project_id: str = field(init=False)
    index: VectorIndex = field(init=False)

    def __post_init__(self) -> None:
        self.database = Database(self.url)
        with self.database.write() as connection:
            team = teams.create(connection, server_owner(), name="team")
            self.caller = server_owner().within(team.id)
            self.project_id = projects.create(connection, self.caller, name="project").id
        self.index = self.another_index()

    def another_index(self, embedder: Embedder | None = None, *, earlier: Sequence[Embedder] = ()) -> VectorIndex:
        config = VectorIndexConfig(
            mode="embedded", folder=self.folder / "chroma", url="", embedder=embedder or self.embedder, earlier=earlier
        )
        return VectorIndex(self.database, config)

    def restart(self, embedder: Embedder | None = None, *, earlier: Sequence[Embedder] = ()) -> None:
        self.index.close()
        self.index = self.another_index(embedder, earlier=earlier)

    def close(self) -> None:
        self.index.close()
        self.database.close()

    def add(self, *, project_id: str | None = None, **fields: Any) -> str:
        new = memories.NewMemory(project_id=project_id or self.project_id, kind="manual", type="manual", **fields)
        with self.database.write() as connection:
            return memories.add(connection, self.caller, new).memory.id

    def change(self, memory_id: str, **changes: Any) -> None:
        with self.database.write() as connection:
            memories.change(connection, self.caller, memory_id, changes, precondition=lambda _: True)

    def remove(self, memory_id: str) -> None:
        with self.database.write() as connection:
            memories.remove(connection, self.caller, memory_id, precondition=lambda _: True)

    def new_project(self, name: str) -> str:
        with self.database.write() as connection:
            return projects.create(connection, self.caller, name=name).id

    def remove_project(self) -> None:
        bulk_delete.remove_project(self.database, self.caller, self.project_id)

    def find(self, question: str, *, project_id: str | None = None, limit: int = 1) -> list[str]:
        candidates = self.index.semantic_search.candidates(
            [project_id or self.project_id], question, limit=limit, timeout_seconds=10
        )
        return [candidate.memory_id for candidate in candidates][:limit]

    def documents(self, project_id: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the metadata of a project's documents in Chroma, by document id."""
        pages = self.index.collections.pages(collection_names.live(project_id or self.project_id))
        return {document_id: metadata for page in pages for document_id, metadata in page.items()}

    def outbox(self) -> list[Any]:
        with self.database.read() as connection:
            return list(connection.execute(text("SELECT * FROM vector_outbox ORDER BY memory_id")).mappings())


@contextmanager
def opened(databases: Databases, folder: Path, embedder: Embedder = MINILM) -> Iterator[Library]:
    """Yield an empty library in a folder; its database is dropped afterwards."""
    with database_url(databases, folder) as url:
        library = Library(folder, url, embedder)
        yield library
        library.close()


class Counting:
    """An embedder that records its texts, and calls `before` first."""

    version = "1"
    dimensions = 384
    is_remote = False

    def __init__(self, model_id: str = "all-MiniLM-L6-v2") -> None:
        self.model_id = model_id
        self.texts: list[str] = []
        self.before = lambda texts: None

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.before(texts)
        self.texts.extend(texts)
        return MINILM.embed(texts)

    def embed_query(self, text: str) -> Vectors:
        return MINILM.embed_query(text)

    def supports_script(self, script: str) -> bool:
        return MINILM.supports_script(script)
