"""Outbox to Chroma: claims what changed, brings it into the index, and settles it once Chroma has confirmed it."""

import os
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

import structlog
from sqlalchemy import Connection

from app import clock
from app.errors import AppError
from app.store import outbox
from app.store.database import Database
from app.store.engines import rls_context
from app.store.outbox import Entry
from app.vectors import collection_names
from app.vectors.chroma.collections import Collections
from app.vectors.errors import ConnectionLost, NotInitialized, TimedOut, VectorsUnavailable
from app.vectors.sync.writer import Writer

_log = structlog.get_logger(__name__)

BATCH_MEMORIES: Final = 16
"""A batch is embedded in a second or two; what clients write meanwhile is next."""
LEASE_MS: Final = 120_000
WRITE_MARGIN_MS: Final = 60_000
"""A claim must outlast the slowest write to Chroma, or another process could be overtaken by ours."""
MAX_ATTEMPTS: Final = 5
_MODEL_PAUSE_MS: Final = 10_000
_SETTLED_AT_ONCE: Final = 500
_OUTAGES = (ConnectionLost, TimedOut, NotInitialized)


class Mirror:
    """One drainer. `place` is shared by those of whom one lives at a time; '' when the database has one place alone."""

    def __init__(self, database: Database, collections: Collections, writer: Writer, *, place: str) -> None:
        self._database = database
        self._collections = collections
        self._writer = writer
        self._place = place
        self._owner = f"{place}{os.getpid()}-{clock.new_id()}"
        self._emptied: set[str] = set()
        self._guard = threading.Lock()
        self._draining = threading.Lock()
        self.swapping = threading.Lock()
        """Held while confirmed writes are settled, and by whoever puts another collection in a serving one's place."""

    def refill(self, collection_name: str) -> None:
        """Note that a collection was made or found gone: its project is asked for again at the next round."""
        project_id = collection_names.project_of(collection_name)
        if project_id:
            with self._guard:
                self._emptied.add(project_id)

    def release(self) -> None:
        """Give back what is claimed: the next drainer need not wait for the lease to end."""
        with self._writing() as connection:
            outbox.release(connection, self._owner)

    def release_predecessors(self) -> None:
        """Give back the claims of all who were here before: for the one owner of a folder, who knows them dead."""
        with self._writing() as connection:
            outbox.release_place(connection, self._place)

    def drain(self, progress: Callable[[int], None] = lambda _: None) -> int:
        """Drain until nothing is due; return how many entries were taken. Raises VectorsUnavailable in an outage."""
        taken = 0
        while count := self.drain_once():
            taken += count
            progress(taken)
        return taken

    def drain_once(self) -> int:
        """Take one batch; return how many entries it had. Zero also means that no other thread is at one."""
        with self._draining:
            return self._drain_batch()

    def enqueue_project(self, project_id: str) -> None:
        """Ask for every memory of a project; what is unchanged costs a comparison and no embedding."""
        last: int | None = 0
        while last is not None:
            with self.turn_in(project_id) as connection:
                last = outbox.enqueue_slice(connection, project_id, after_seq=last, now_ms=clock.now_ms())

    @contextmanager
    def turn_in(self, project_id: str) -> Iterator[Connection]:
        """Yield a connection to enqueue with: nobody writes for the project's team meanwhile, so nobody deadlocks."""
        with self._database.read() as connection:
            sizes = outbox.sizes(connection, project_id)
        with rls_context.acting(sizes[0].team_id if sizes else None), self._database.write() as connection:
            yield connection

    def _writing(self) -> AbstractContextManager[Connection]:
        """Yield a connection to claim and to settle with: rows are locked singly, so that drainers do not queue."""
        return self._database.write(in_turn=False)

    def _drain_batch(self) -> int:
        self._refill_emptied()
        now_ms = clock.now_ms()
        with self._database.read() as connection:
            if not outbox.has_due(connection, self._owner, now_ms=now_ms):
                return 0
        with self._writing() as connection:
            entries = outbox.claim(connection, self._owner, now_ms=now_ms, lease_ms=LEASE_MS, limit=BATCH_MEMORIES)
        try:
            for project_id, group in _by_project(entries).items():
                self._mirror_project(project_id, group)
        except VectorsUnavailable:
            self.release()
            raise
        return len(entries)

    def _refill_emptied(self) -> None:
        with self._guard:
            emptied, self._emptied = self._emptied, set()
        try:
            for project_id in emptied:
                self.enqueue_project(project_id)
        except BaseException:
            with self._guard:
                self._emptied |= emptied
            raise

    def _mirror_project(self, project_id: str, entries: Sequence[Entry]) -> None:
        if self._is_empty(project_id):
            self._drop(project_id, entries)
        elif self._is_of_another_model(project_id):
            self._wait_for_rebuild(project_id, entries)
        else:
            self._bring_all(project_id, entries)

    def _drop(self, project_id: str, entries: Sequence[Entry]) -> None:
        """Drop the collection of a project without memories: one call, however many there were."""
        for name in (
            collection_names.serving(project_id),
            collection_names.filling(project_id),
            collection_names.retired(project_id),
        ):
            self._collections.drop(name)
        if not self._is_empty(project_id):  # somebody may have brought a new memory while we dropped
            self.refill(collection_names.serving(project_id))
        with self._writing() as connection:
            outbox.settle(connection, self._owner, entries)
        settled = _SETTLED_AT_ONCE
        while settled == _SETTLED_AT_ONCE:
            with self._writing() as connection:
                settled = outbox.settle_project(connection, project_id, limit=_SETTLED_AT_ONCE)

    def _is_empty(self, project_id: str) -> bool:
        with self._database.read() as connection:
            size = outbox.sizes(connection, project_id)
        return not size or size[0].memories == 0

    def _is_of_another_model(self, project_id: str) -> bool:
        found = self._collections.find(collection_names.serving(project_id))
        if found is not None and found.model is None:
            _log.warning("foreign_collection_dropped", collection=found.name)
            self._collections.drop(found.name)
            self.refill(found.name)
            return False
        return found is not None and found.model != self._writer.model

    def _wait_for_rebuild(self, project_id: str, entries: Sequence[Entry]) -> None:
        """Remove what changed from the collection that still serves; its new vectors belong to the next one."""
        name = collection_names.serving(project_id)
        self._collections.delete(name, list(self._collections.metadata(name, [entry.memory_id for entry in entries])))
        with self._writing() as connection:
            outbox.postpone(connection, self._owner, entries, until_ms=clock.now_ms() + _MODEL_PAUSE_MS)

    def _bring_all(self, project_id: str, entries: Sequence[Entry]) -> None:
        """Bring a group; when something in it is refused, bring them one by one to find the one at fault."""
        try:
            self._bring(project_id, entries)
        except (*_OUTAGES, AppError):
            raise
        except Exception as failure:  # noqa: BLE001 - whatever a row may do, it must not stop the others
            if len(entries) == 1:
                self._fail(entries[0], failure)
                return
            for entry in entries:
                self._bring_all(project_id, [entry])

    def _bring(self, project_id: str, entries: Sequence[Entry]) -> None:
        name = collection_names.serving(project_id)
        memory_ids = [entry.memory_id for entry in entries]
        with self._database.read() as connection:
            rows = outbox.texts(connection, project_id, memory_ids)
        gone = [memory_id for memory_id in memory_ids if memory_id not in rows]
        prepared = self._writer.prepare(name, list(rows.values()), gone)
        with self.swapping:
            with self._database.read() as connection:
                until_ms = clock.now_ms() + WRITE_MARGIN_MS
                current = outbox.still_mine(connection, self._owner, entries, until_ms=until_ms)
            self._writer.apply(name, prepared, {entry.memory_id for entry in current})
            with self._writing() as connection:
                outbox.settle(connection, self._owner, current)
                outbox.postpone(connection, self._owner, entries, until_ms=0)

    def _fail(self, entry: Entry, failure: Exception) -> None:
        """Note the failure of one entry, unless the whole index is at fault: then nobody's attempts are counted."""
        if isinstance(failure, VectorsUnavailable):
            self._check_health()
        attempts = entry.attempts + 1
        retry_at_ms = clock.now_ms() + _backoff_ms(attempts) if attempts < MAX_ATTEMPTS else None
        error = f"{type(failure).__name__}: {failure}"[:300]
        _log.warning("memory_not_mirrored", memory=entry.memory_id, attempts=attempts, set_aside=retry_at_ms is None)
        with self._writing() as connection:
            outbox.defer(connection, self._owner, entry, error=error, retry_at_ms=retry_at_ms)

    def _check_health(self) -> None:
        """Raise VectorsUnavailable when even a plain text cannot be embedded, or Chroma refuses everything."""
        self._writer.embed_plain_text()
        self._collections.names()


def _by_project(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    grouped: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        grouped[entry.project_id].append(entry)
    return grouped


def _backoff_ms(attempts: int) -> int:
    """Return a pause that doubles with each attempt, jittered so that failed entries do not come back as one."""
    return round(random.uniform(0.5, 1.0) * 2_000 * (1 << attempts))  # noqa: S311 - jitter, not a secret
