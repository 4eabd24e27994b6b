"""Adopts the vectors of a claude-mem Chroma folder for imported memories, so that they need no new embedding."""

from collections import ChainMap, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection

from app.caller import TEAM_ADMIN, Caller, server_owner
from app.services.operations import jobs
from app.services.operations.jobs import Handler, Operation, Progress
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

LegacyRowKey = tuple[str, int]
"""Table and id of a row in the legacy database."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """How many vectors the folder held, of another model and were adopted, and what was embedded."""

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
    """Adopt the vectors whose text and model match, then index the rest of the projects concerned.

    A vector goes to the memory imported from its row, and there to the document with the same text: the row id alone
    is ambiguous when two databases were imported. Raises VectorsUnavailable.
    """
    caller.require(TEAM_ADMIN)
    seen, other_model, adopted, project_ids = 0, 0, 0, set[str]()
    for page in pages:
        same_model = adoption.is_same_model(index.embedder, page)
        with index.mirror.swap_lock:
            counts = _adopt_page(database, index, caller, page, same_model=same_model)
        seen += len(page)
        other_model += 0 if same_model else len(page)
        adopted += sum(counts.values())
        project_ids |= counts.keys()
        progress(seen, None)
    embedded = sum(index.repair.count_unmirrored(project_id) for project_id in project_ids)
    for project_id in sorted(project_ids):
        index.mirror.enqueue_project(project_id)
    index.mirror.drain()
    return Adopted(seen, other_model, adopted, embedded, len(project_ids))


def request(connection: Connection, caller: Caller, folder: Path) -> Operation:
    """Request the server that owns the index to adopt a folder on this machine."""
    caller.require(TEAM_ADMIN)
    return jobs.create(connection, caller, KIND, project_id=None, arguments={"folder": str(folder.absolute())})


def handler(database: Database, index: VectorIndex) -> Handler:
    """Return the handler of such an operation."""

    def run(operation: Operation, progress: Progress) -> dict[str, Any]:
        caller = server_owner().within(operation.team_id or "")
        with adoption.open_folder(Path(operation.arguments["folder"])) as pages:
            return asdict(adopt(database, index, caller, pages, progress))

    return run


def _adopt_page(
    database: Database, index: VectorIndex, caller: Caller, page: Sequence[LegacyVector], *, same_model: bool
) -> dict[str, int]:
    """Store the matching vectors of one page; return their number by project, zeros included."""
    by_row: dict[LegacyRowKey, dict[str, Vectors]] = defaultdict(dict)
    for one in page:
        by_row[one.legacy_table, one.legacy_id][one.text_hash] = one.vector
    with database.read() as connection:
        owners = _owners(connection, caller, by_row)
        memories = {project_id: outbox.texts(connection, project_id, list(rows)) for project_id, rows in owners.items()}
    counts: dict[str, int] = {}
    for project_id, rows in owners.items():
        matches: list[tuple[Document, Vectors]] = []
        for memory_id, memory in memories[project_id].items() if same_model else ():
            theirs = ChainMap(*(by_row[row] for row in rows[memory_id]))
            matches += [(ours, theirs[ours.text_hash]) for ours in documents.of(memory) if ours.text_hash in theirs]
        if matches:
            vectors = unit(np.stack([vector for _, vector in matches]))
            name = collection_names.live(project_id)
            index.collections.upsert(name, index.model, [document for document, _ in matches], vectors)
        counts[project_id] = len(matches)
    return counts


def _owners(
    connection: Connection, caller: Caller, by_row: Mapping[LegacyRowKey, object]
) -> dict[str, dict[str, list[LegacyRowKey]]]:
    """Return the memories that were imported from these rows, by project, each with its rows."""
    owners: dict[str, dict[str, list[LegacyRowKey]]] = defaultdict(lambda: defaultdict(list))
    sources = memory_sources.c
    for table in {table for table, _ in by_row}:
        numbers = [str(number) for of_table, number in by_row if of_table == table]
        statement = owned(memory_sources, caller, sources.project_id, sources.memory_item_id, sources.legacy_id)
        statement = statement.where(sources.legacy_table == table, sources.legacy_id.in_(numbers))
        for project_id, memory_id, legacy_id in connection.execute(statement):
            owners[project_id][memory_id].append((table, int(legacy_id)))
    return owners
