"""A small library of memories with a vector index over it, for the tests of the mirror."""

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
from app.vectors.index import Choice, VectorIndex
from tests.stores import Stores, of_folder

MINILM = MiniLM(threads=1)


@dataclass
class Library:
    """One team with a project; `index` mirrors it when told to."""

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
        choice = Choice(
            mode="embedded", folder=self.folder / "chroma", url="", embedder=embedder or self.embedder, earlier=earlier
        )
        return VectorIndex(self.database, choice)

    def restart(self, embedder: Embedder | None = None, *, earlier: Sequence[Embedder] = ()) -> None:
        self.index.close()
        self.index = self.another_index(embedder, earlier=earlier)

    def close(self) -> None:
        self.index.close()
        self.database.close()

    def add(self, *, project_id: str | None = None, **fields: Any) -> str:
        new = memories.NewMemory(project_id=project_id or self.project_id, kind="manual", type="manual", **fields)
        with self.database.write() as connection:
            return memories.add(connection, self.caller, new)[0].id

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
        found = self.index.meaning.candidates([project_id or self.project_id], question, limit=limit, seconds=10)
        return [candidate.memory_id for candidate in found][:limit]

    def documents(self, project_id: str | None = None) -> dict[str, dict[str, Any]]:
        """Return what Chroma holds of a project: metadata by document id."""
        pages = self.index.collections.pages(collection_names.serving(project_id or self.project_id))
        return {document_id: kept for page in pages for document_id, kept in page.items()}

    def outbox(self) -> list[Any]:
        with self.database.read() as connection:
            return list(connection.execute(text("SELECT * FROM vector_outbox ORDER BY memory_id")).mappings())


@contextmanager
def opened(stores: Stores, folder: Path, embedder: Embedder = MINILM) -> Iterator[Library]:
    """Open the empty library of a folder; its database is gone in the end."""
    with of_folder(stores, folder) as url:
        library = Library(folder, url, embedder)
        yield library
        library.close()


class Counting:
    """An embedder that counts the texts it was given, and can be made to do something first."""

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

    def reads(self, script: str) -> bool:
        return MINILM.reads(script)
