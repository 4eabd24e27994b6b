"""Compares what Chroma holds with what SQL says, by id and content, page by page, and repairs the difference."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from app import clock
from app.store import outbox
from app.store.database import Database
from app.store.outbox import MemoryText, OutboxEntry
from app.vectors import collection_names, documents
from app.vectors.chroma.collections import Collections
from app.vectors.documents import Metadata
from app.vectors.sync.mirror import Mirror
from app.vectors.sync.writer import Writer

_log = structlog.get_logger(__name__)

_PAGE_MEMORIES: Final = 500
_FILL_MEMORIES: Final = 16
_REBUILD: Final = "rebuild"

Progress = Callable[[int], None]
"""Called regularly with the number of memories processed so far."""


@dataclass(slots=True)
class Differences:
    """How the documents of one project differ, as counts, and the memories that they belong to.

    `missing` and `stale` documents are absent or of another text, `orphans` belong to no text, `duplicate` ids repeat.
    """

    project_id: str
    documents: int = 0
    missing: int = 0
    stale: int = 0
    orphans: int = 0
    duplicate: int = 0
    pending: int = 0
    memory_ids: set[str] = field(default_factory=set)

    @property
    def is_equal(self) -> bool:
        """Say whether Chroma holds exactly what SQL says, apart from pending memories."""
        return not self.memory_ids


@dataclass(frozen=True, slots=True)
class IndexAudit:
    """The state of all collections: `empty` and `other_model` are project ids, `orphans` collection names."""

    empty: Sequence[str]
    other_model: Sequence[str]
    orphans: Sequence[str]


def no_progress(_: int) -> None:
    """Report nothing."""


class Repair:
    """Compares, repairs and rebuilds the collections of projects."""

    def __init__(self, database: Database, collections: Collections, writer: Writer, mirror: Mirror) -> None:
        self._database = database
        self._collections = collections
        self._writer = writer
        self._mirror = mirror

    def count_unmirrored(self, project_id: str) -> int:
        """Return how many documents of a project are missing or stale in its collection, pending ones included."""
        differences = Differences(project_id)
        for _, rows in self._pages(project_id):
            self._compare_memories(collection_names.live(project_id), rows, set(), differences)
        return differences.missing + differences.stale

    def compare(self, project_id: str, progress: Progress = no_progress, *, name: str | None = None) -> Differences:
        """Return how a project's collection differs. Memories with a pending entry are counted as pending only."""
        differences = Differences(project_id)
        name = name or collection_names.live(project_id)
        for done, rows in self._pages(project_id):
            with self._database.read() as connection:
                pending = outbox.pending_among(connection, [row.id for row in rows])
            differences.pending += len(pending)
            self._compare_memories(name, rows, pending, differences)
            progress(done)
        seen: set[str] = set()
        for page in self._collections.pages(name):
            differences.duplicate += len(seen & page.keys())
            seen |= page.keys()
            self._find_orphans(project_id, page, differences)
        differences.documents = len(seen)
        return differences

    def verify(self, project_id: str, progress: Progress = no_progress, *, dry_run: bool) -> Differences:
        """Compare a project and, unless this is a dry run, index again what differs."""
        differences = self.compare(project_id, progress)
        if not dry_run and differences.memory_ids:
            self._enqueue(project_id, sorted(differences.memory_ids))
            self._mirror.drain()
        return differences

    def rebuild(self, project_id: str, progress: Progress = no_progress) -> int:
        """Rebuild a project's collection while the live one answers; return how many memories it has.

        Changes meanwhile go to the live collection, and are carried over by comparing before and after the swap.
        Waits for rebuilds of other processes.
        """
        with self._database.advisory_lock(_REBUILD):
            return self._rebuild(project_id, progress)

    def rebuild_outdated(self, project_id: str, progress: Progress = no_progress) -> None:
        """Rebuild a project whose vectors are of another model, unless another process has just done so."""
        with self._database.advisory_lock(_REBUILD):
            if self._is_of_another_model(project_id, fresh=True):
                self._rebuild(project_id, progress)

    def orphan_collections(self) -> list[str]:
        """Return the collections of projects that no longer exist."""
        # Names first: a project exists before its collection does.
        names = [name for name in self._collections.names() if collection_names.project_of(name)]
        with self._database.read() as connection:
            project_ids = {size.project_id for size in outbox.sizes(connection)}
        return sorted(name for name in names if collection_names.project_of(name) not in project_ids)

    def audit(self) -> IndexAudit:
        """Inspect all collections, after undoing what interrupted rebuilds left behind."""
        names = set(self._collections.names())
        with self._database.advisory_lock(_REBUILD, wait=False) as nobody_rebuilds:
            unfinished = (
                [(name, collection_names.unfinished(name)) for name in sorted(names)] if nobody_rebuilds else []
            )
            for name, project_id in unfinished:
                if project_id:
                    self._undo_rebuild(name, project_id, names)
        with self._database.read() as connection:
            sizes = {size.project_id: size.memories for size in outbox.sizes(connection)}
        filled = [project_id for project_id, memories in sizes.items() if memories]
        known = {name for name in names if collection_names.project_of(name)}
        return IndexAudit(
            empty=[one for one in filled if self._collections.count(collection_names.live(one)) == 0],
            other_model=[one for one in filled if self._is_of_another_model(one)],
            orphans=sorted(name for name in known if collection_names.project_of(name) not in sizes),
        )

    def _compare_memories(
        self, name: str, rows: Sequence[MemoryText], pending: set[str], differences: Differences
    ) -> None:
        """Count the documents that these memories should have, and the collection lacks or holds with another text."""
        stored = self._collections.metadata(name, [row.id for row in rows])
        for row in rows:
            for document in documents.of(row) if row.id not in pending else ():
                held = stored.get(document.id)
                differences.missing += held is None
                differences.stale += held is not None and held.get("text_hash") != document.text_hash
                if held is None or held.get("text_hash") != document.text_hash:
                    differences.memory_ids.add(row.id)

    def _find_orphans(self, project_id: str, page: dict[str, Metadata], differences: Differences) -> None:
        """Count the documents on a page that no memory has a text for."""
        memory_ids = sorted({documents.memory_id(document_id) for document_id in page})
        for start in range(0, len(memory_ids), _PAGE_MEMORIES):
            batch = memory_ids[start : start + _PAGE_MEMORIES]
            with self._database.read() as connection:
                rows = outbox.texts(connection, project_id, batch)
                pending = outbox.pending_among(connection, batch)
            expected = {one.id for row in rows.values() for one in documents.of(row)}
            orphans = _documents_of(page, set(batch) - pending) - expected
            differences.orphans += len(orphans)
            differences.memory_ids |= {documents.memory_id(document_id) for document_id in orphans}

    def _enqueue(self, project_id: str, memory_ids: Sequence[str]) -> None:
        """Enqueue memories; those that SQL does not have in this project are to be deleted from the index."""
        for start in range(0, len(memory_ids), outbox.ENQUEUE_ROWS // 4):
            batch = memory_ids[start : start + outbox.ENQUEUE_ROWS // 4]
            with self._mirror.enqueueing(project_id) as connection:
                rows = outbox.texts(connection, project_id, batch)
                team_id = outbox.sizes(connection, project_id)[0].team_id
                entries = [
                    OutboxEntry(
                        memory_id=memory_id,
                        team_id=team_id,
                        project_id=project_id,
                        operation="upsert" if memory_id in rows else "delete",
                        version=rows[memory_id].version if memory_id in rows else 0,
                        attempts=0,
                    )
                    for memory_id in batch
                ]
                outbox.enqueue(connection, entries, now_ms=clock.now_ms())

    def _catch_up(self, project_id: str, name: str) -> None:
        """Bring a rebuilt collection up to date with what changed during its rebuild."""
        memory_ids = sorted(self.compare(project_id, name=name).memory_ids)
        for start in range(0, len(memory_ids), _FILL_MEMORIES):
            batch = memory_ids[start : start + _FILL_MEMORIES]
            with self._database.read() as connection:
                rows = outbox.texts(connection, project_id, batch)
            deleted_ids = [memory_id for memory_id in batch if memory_id not in rows]
            update = self._writer.prepare(name, list(rows.values()), deleted_ids)
            self._writer.apply(name, update, set(batch))

    def _rebuild(self, project_id: str, progress: Progress) -> int:
        name = collection_names.staging(project_id)
        self._collections.drop(name)
        self._collections.ensure(name, self._writer.model)
        count = 0
        for done, rows in self._pages(project_id, size=_FILL_MEMORIES):
            self._writer.index(name, rows)
            count = done
            progress(done)
        self._catch_up(project_id, name)
        with self._mirror.swap_lock:
            self._swap(project_id)
        with self._mirror.enqueueing(project_id) as connection:  # first: other drainers may have missed the swap
            outbox.requeue_claimed(connection, project_id)
        self.verify(project_id, dry_run=False)
        return count

    def _swap(self, project_id: str) -> None:
        """Make the staging collection the live one; searches that still hold the old one may finish reading it."""
        live, retired = collection_names.live(project_id), collection_names.retired(project_id)
        self._collections.drop(retired)
        if self._collections.find(live, fresh=True):
            self._collections.rename(live, retired)
        self._collections.rename(collection_names.staging(project_id), live)
        self._collections.drop(retired)

    def _undo_rebuild(self, name: str, project_id: str, names: set[str]) -> None:
        """Undo an interrupted rebuild; if it stopped between its renames, the retired collection goes live again."""
        if name == collection_names.retired(project_id) and collection_names.live(project_id) not in names:
            self._collections.rename(name, collection_names.live(project_id))
            names.add(collection_names.live(project_id))
        else:
            self._collections.drop(name)
        _log.info("unfinished_rebuild_undone", collection=name)

    def _is_of_another_model(self, project_id: str, *, fresh: bool = False) -> bool:
        collection = self._collections.find(collection_names.live(project_id), fresh=fresh)
        return collection is not None and collection.model != self._writer.model

    def _pages(self, project_id: str, *, size: int = _PAGE_MEMORIES) -> Iterator[tuple[int, list[MemoryText]]]:
        """Yield a project's memories page by page, each with the number of memories so far."""
        last, done = 0, 0
        while True:
            with self._database.read() as connection:
                rows = outbox.page(connection, project_id, after_seq=last, limit=size)
            if not rows:
                return
            last, done = rows[-1][0], done + len(rows)
            yield done, [row for _, row in rows]


def _documents_of(page: dict[str, Metadata], memory_ids: set[str]) -> set[str]:
    return {document_id for document_id in page if documents.memory_id(document_id) in memory_ids}
