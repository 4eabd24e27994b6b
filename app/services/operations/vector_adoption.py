"""Takes vectors of a claude-mem Chroma folder over for imported memories: what agrees need not be embedded again."""

from collections import ChainMap, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection

from app.caller import TEAM_ADMIN, Caller, server_owner
from app.services.operations import jobs
from app.services.operations.jobs import Operation, Progress, Verb
from app.store import outbox
from app.store.database import Database
from app.store.models import memory_sources
from app.store.scope import owned
from app.vectors import collection_names, documents
from app.vectors.documents import Document
from app.vectors.embedding import Vectors, unit
from app.vectors.index import VectorIndex
from app.vectors.sync import adoption
from app.vectors.sync.adoption import LegacyVector

KIND: Final = "vectors.adopt"

Row = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Adopted:
    """How many vectors there were, of those of another model, how many were taken over; and what was embedded."""

    vectors: int
    other_model: int
    adopted: int
    embedded: int
    projects: int


def adopt(
    database: Database,
    index: VectorIndex,
    caller: Caller,
    pages: Iterable[Sequence[LegacyVector]],
    progress: Progress = lambda _done, _total: None,
) -> Adopted:
    """Take over what agrees in text and model, then mirror the rest of the projects concerned.

    A vector belongs to the memory that was imported from its row, and there to the document of the same text: the
    number alone would not tell rows of two imported databases apart. Raises VectorsUnavailable.
    """
    caller.require(TEAM_ADMIN)
    seen, other_model, taken, project_ids = 0, 0, 0, set[str]()
    for page in pages:
        same_model = adoption.is_same_model(index.embedder, page)
        with index.mirror.swapping:
            counts = _take_over(database, index, caller, page, same_model=same_model)
        seen += len(page)
        other_model += 0 if same_model else len(page)
        taken += sum(counts.values())
        project_ids |= counts.keys()
        progress(seen, None)
    embedded = sum(index.repair.unmirrored(project_id) for project_id in project_ids)
    for project_id in sorted(project_ids):
        index.mirror.enqueue_project(project_id)
    index.mirror.drain()
    return Adopted(seen, other_model, taken, embedded, len(project_ids))


def request(connection: Connection, caller: Caller, folder: Path) -> Operation:
    """Ask the server that has the index to adopt a folder of this machine."""
    caller.require(TEAM_ADMIN)
    return jobs.create(connection, caller, KIND, project_id=None, arguments={"folder": str(folder.absolute())})


def verb(database: Database, index: VectorIndex) -> Verb:
    """Return what does such an operation."""

    def run(operation: Operation, progress: Progress) -> dict[str, Any]:
        caller = server_owner().within(operation.team_id or "")
        with adoption.opened(Path(operation.arguments["folder"])) as pages:
            return asdict(adopt(database, index, caller, pages, progress))

    return run


def _take_over(
    database: Database, index: VectorIndex, caller: Caller, page: Sequence[LegacyVector], *, same_model: bool
) -> dict[str, int]:
    """Store what agrees on one page; return how many vectors by project, also where none did."""
    by_row: dict[Row, dict[str, Vectors]] = defaultdict(dict)
    for one in page:
        by_row[one.legacy_table, one.legacy_id][one.text_hash] = one.vector
    with database.read() as connection:
        owners = _owners(connection, caller, by_row)
        wanted = {project_id: outbox.texts(connection, project_id, list(rows)) for project_id, rows in owners.items()}
    counts: dict[str, int] = {}
    for project_id, rows in owners.items():
        agreed: list[tuple[Document, Vectors]] = []
        for memory_id, memory in wanted[project_id].items() if same_model else ():
            theirs = ChainMap(*(by_row[row] for row in rows[memory_id]))
            agreed += [(ours, theirs[ours.text_hash]) for ours in documents.of(memory) if ours.text_hash in theirs]
        if agreed:
            vectors = unit(np.stack([vector for _, vector in agreed]))
            name = collection_names.serving(project_id)
            index.collections.upsert(name, index.model, [document for document, _ in agreed], vectors)
        counts[project_id] = len(agreed)
    return counts


def _owners(connection: Connection, caller: Caller, by_row: Mapping[Row, object]) -> dict[str, dict[str, list[Row]]]:
    """Return the legacy rows of each memory that was imported from one of these, by project."""
    found: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    sources = memory_sources.c
    for table in {table for table, _ in by_row}:
        numbers = [str(number) for of_table, number in by_row if of_table == table]
        statement = owned(memory_sources, caller, sources.project_id, sources.memory_item_id, sources.legacy_id)
        statement = statement.where(sources.legacy_table == table, sources.legacy_id.in_(numbers))
        for project_id, memory_id, legacy_id in connection.execute(statement):
            found[project_id][memory_id].append((table, int(legacy_id)))
    return found
