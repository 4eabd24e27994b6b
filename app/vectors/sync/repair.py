"""Truth by comparison: what SQL has against what Chroma has, by id and content, page by page; and making it so."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from app import clock
from app.store import outbox
from app.store.database import Database
from app.store.outbox import Entry, MemoryText
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
"""Told now and then how many memories have been dealt with."""


@dataclass(slots=True)
class Differences:
    """Documents of one project that differ, as counts, and the memories that they belong to."""

    project_id: str
    documents: int = 0
    missing: int = 0
    stale: int = 0
    ghost: int = 0
    duplicate: int = 0
    pending: int = 0
    memory_ids: set[str] = field(default_factory=set)

    @property
    def is_equal(self) -> bool:
        """Say whether Chroma holds exactly what SQL says, except for what is pending."""
        return not self.memory_ids


@dataclass(frozen=True, slots=True)
class Survey:
    """What a look at all collections found: projects to fill, and those whose vectors are of another model."""

    empty: Sequence[str]
    other_model: Sequence[str]
    ownerless: Sequence[str]


def quiet(_: int) -> None:
    """Tell nobody of the progress."""


class Repair:
    """Compares, repairs and rebuilds projects."""

    def __init__(self, database: Database, collections: Collections, writer: Writer, mirror: Mirror) -> None:
        self._database = database
        self._collections = collections
        self._writer = writer
        self._mirror = mirror

    def unmirrored(self, project_id: str) -> int:
        """Return how many documents of a project are not in its collection as they are now, pending or not."""
        found = Differences(project_id)
        for _, rows in self._pages(project_id):
            self._find_missing(collection_names.serving(project_id), rows, set(), found)
        return found.missing + found.stale

    def compare(self, project_id: str, progress: Progress = quiet, *, name: str | None = None) -> Differences:
        """Return how a project's collection differs. Memories with a pending entry are counted as pending only."""
        found = Differences(project_id)
        name = name or collection_names.serving(project_id)
        for done, rows in self._pages(project_id):
            with self._database.read() as connection:
                pending = outbox.pending_among(connection, [row.id for row in rows])
            found.pending += len(pending)
            self._find_missing(name, rows, pending, found)
            progress(done)
        seen: set[str] = set()
        for page in self._collections.pages(name):
            found.duplicate += len(seen & page.keys())
            seen |= page.keys()
            self._find_ghosts(project_id, page, found)
        found.documents = len(seen)
        return found

    def verify(self, project_id: str, progress: Progress = quiet, *, dry_run: bool) -> Differences:
        """Compare a project, and ask for what differs to be mirrored again unless it is a rehearsal."""
        found = self.compare(project_id, progress)
        if not dry_run and found.memory_ids:
            self._enqueue(project_id, sorted(found.memory_ids))
            self._mirror.drain()
        return found

    def rebuild(self, project_id: str, progress: Progress = quiet) -> int:
        """Make a project's collection anew while the old one answers; return how many memories it has.

        What changes meanwhile goes to the old one, and is brought over by the comparisons before and after the swap.
        Whoever else rebuilds is waited for.
        """
        with self._database.alone(_REBUILD):
            return self._rebuild(project_id, progress)

    def rebuild_outdated(self, project_id: str, progress: Progress = quiet) -> None:
        """Rebuild a project whose vectors are of another model, unless somebody else has done so meanwhile."""
        with self._database.alone(_REBUILD):
            if self._is_of_another_model(project_id, fresh=True):
                self._rebuild(project_id, progress)

    def ownerless(self) -> list[str]:
        """Return the collections of projects that are no more."""
        # Names first: a project is there before its collection.
        names = [name for name in self._collections.names() if collection_names.project_of(name)]
        with self._database.read() as connection:
            project_ids = {size.project_id for size in outbox.sizes(connection)}
        return sorted(name for name in names if collection_names.project_of(name) not in project_ids)

    def survey(self) -> Survey:
        """Look at all collections; undo what an interrupted rebuild left behind."""
        names = set(self._collections.names())
        with self._database.alone(_REBUILD, wait=False) as nobody_rebuilds:
            unfinished = (
                [(name, collection_names.unfinished(name)) for name in sorted(names)] if nobody_rebuilds else []
            )
            for name, project_id in unfinished:
                if project_id:
                    self._tidy(name, project_id, names)
        with self._database.read() as connection:
            sizes = {size.project_id: size.memories for size in outbox.sizes(connection)}
        filled = [project_id for project_id, memories in sizes.items() if memories]
        known = {name for name in names if collection_names.project_of(name)}
        return Survey(
            empty=[one for one in filled if self._collections.count(collection_names.serving(one)) == 0],
            other_model=[one for one in filled if self._is_of_another_model(one)],
            ownerless=sorted(name for name in known if collection_names.project_of(name) not in sizes),
        )

    def _find_missing(self, name: str, rows: Sequence[MemoryText], pending: set[str], found: Differences) -> None:
        kept = self._collections.metadata(name, [row.id for row in rows])
        for row in rows:
            for document in documents.of(row) if row.id not in pending else ():
                held = kept.get(document.id)
                found.missing += held is None
                found.stale += held is not None and held.get("text_hash") != document.text_hash
                if held is None or held.get("text_hash") != document.text_hash:
                    found.memory_ids.add(row.id)

    def _find_ghosts(self, project_id: str, page: dict[str, Metadata], found: Differences) -> None:
        memory_ids = sorted({documents.memory_id(document_id) for document_id in page})
        for start in range(0, len(memory_ids), _PAGE_MEMORIES):
            some = memory_ids[start : start + _PAGE_MEMORIES]
            with self._database.read() as connection:
                rows = outbox.texts(connection, project_id, some)
                pending = outbox.pending_among(connection, some)
            wanted = {one.id for row in rows.values() for one in documents.of(row)}
            ghosts = _of(page, set(some) - pending) - wanted
            found.ghost += len(ghosts)
            found.memory_ids |= {documents.memory_id(document_id) for document_id in ghosts}

    def _enqueue(self, project_id: str, memory_ids: Sequence[str]) -> None:
        """Ask for memories again; one that SQL does not know (in this project) is to be deleted."""
        for start in range(0, len(memory_ids), outbox.ENQUEUE_ROWS // 4):
            some = memory_ids[start : start + outbox.ENQUEUE_ROWS // 4]
            with self._mirror.turn_in(project_id) as connection:
                rows = outbox.texts(connection, project_id, some)
                team_id = outbox.sizes(connection, project_id)[0].team_id
                entries = [
                    Entry(
                        memory_id=memory_id,
                        team_id=team_id,
                        project_id=project_id,
                        operation="upsert" if memory_id in rows else "delete",
                        version=rows[memory_id].version if memory_id in rows else 0,
                        attempts=0,
                    )
                    for memory_id in some
                ]
                outbox.enqueue(connection, entries, now_ms=clock.now_ms())

    def _bring_over(self, project_id: str, name: str) -> None:
        found = self.compare(project_id, name=name)
        memory_ids = sorted(found.memory_ids)
        for start in range(0, len(memory_ids), _FILL_MEMORIES):
            some = memory_ids[start : start + _FILL_MEMORIES]
            with self._database.read() as connection:
                rows = outbox.texts(connection, project_id, some)
            gone = [memory_id for memory_id in some if memory_id not in rows]
            prepared = self._writer.prepare(name, list(rows.values()), gone)
            self._writer.apply(name, prepared, set(some))

    def _rebuild(self, project_id: str, progress: Progress) -> int:
        name = collection_names.filling(project_id)
        self._collections.drop(name)
        self._collections.ensure(name, self._writer.model)
        count = 0
        for done, rows in self._pages(project_id, size=_FILL_MEMORIES):
            self._writer.bring(name, rows)
            count = done
            progress(done)
        self._bring_over(project_id, name)
        with self._mirror.swapping:
            self._swap(project_id)
        with self._mirror.turn_in(project_id) as connection:  # before comparing: other drainers may miss the swap
            outbox.bring_again(connection, project_id)
        self.verify(project_id, dry_run=False)
        return count

    def _swap(self, project_id: str) -> None:
        """Put the filled collection in the place of the old one; who still holds the old one may finish reading it."""
        serving, retired = collection_names.serving(project_id), collection_names.retired(project_id)
        self._collections.drop(retired)
        if self._collections.find(serving, fresh=True):
            self._collections.rename(serving, retired)
        self._collections.rename(collection_names.filling(project_id), serving)
        self._collections.drop(retired)

    def _tidy(self, name: str, project_id: str, names: set[str]) -> None:
        """Undo an interrupted rebuild; one that was cut between its two renames is put back."""
        if name == collection_names.retired(project_id) and collection_names.serving(project_id) not in names:
            self._collections.rename(name, collection_names.serving(project_id))
            names.add(collection_names.serving(project_id))
        else:
            self._collections.drop(name)
        _log.info("unfinished_rebuild_undone", collection=name)

    def _is_of_another_model(self, project_id: str, *, fresh: bool = False) -> bool:
        found = self._collections.find(collection_names.serving(project_id), fresh=fresh)
        return found is not None and found.model != self._writer.model

    def _pages(self, project_id: str, *, size: int = _PAGE_MEMORIES) -> Iterator[tuple[int, list[MemoryText]]]:
        """Yield a project's memories page by page, each with how many that makes so far."""
        last, done = 0, 0
        while True:
            with self._database.read() as connection:
                rows = outbox.page(connection, project_id, after_seq=last, limit=size)
            if not rows:
                return
            last, done = rows[-1][0], done + len(rows)
            yield done, [row for _, row in rows]


def _of(page: dict[str, Metadata], memory_ids: set[str]) -> set[str]:
    return {document_id for document_id in page if documents.memory_id(document_id) in memory_ids}
