"""Outbox to Chroma: claims changed memories, indexes them, and acknowledges them once Chroma has confirmed."""

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
from app.store.outbox import OutboxEntry
from app.vectors import collection_names
from app.vectors.chroma.collections import Collections
from app.vectors.errors import ChromaConnectionLost, NotInitialized, TimedOut, VectorsUnavailable
from app.vectors.sync.writer import Writer

_log = structlog.get_logger(__name__)

BATCH_MEMORIES: Final = 16
"""Embedded within a second or two, so that a client's change never waits long for its turn."""
LEASE_MS: Final = 120_000
WRITE_MARGIN_MS: Final = 60_000
"""A claim must outlast the slowest write to Chroma, or this write could overtake another process's newer one."""
MAX_ATTEMPTS: Final = 5
_MODEL_PAUSE_MS: Final = 10_000
_ACKNOWLEDGE_ROWS: Final = 500
_OUTAGES = (ChromaConnectionLost, TimedOut, NotInitialized)


class Mirror:
    """Drains the outbox. Drainers that own the same folder one after the other share `claim_prefix`."""

    def __init__(self, database: Database, collections: Collections, writer: Writer, *, claim_prefix: str) -> None:
        """`claim_prefix` is '' when the database has a single index folder, which is always the case on SQLite."""
        self._database = database
        self._collections = collections
        self._writer = writer
        self._claim_prefix = claim_prefix
        self._owner = f"{claim_prefix}{os.getpid()}-{clock.new_id()}"
        self._emptied: set[str] = set()
        self._guard = threading.Lock()
        self._draining = threading.Lock()
        self.swap_lock = threading.Lock()
        """Held while writes are confirmed and acknowledged, and while another collection becomes the live one."""

    def refill(self, collection_name: str) -> None:
        """Note that a collection was created or is missing: the next round enqueues its whole project."""
        project_id = collection_names.project_of(collection_name)
        if project_id:
            with self._guard:
                self._emptied.add(project_id)

    def release(self) -> None:
        """Release all claims, so that the next drainer need not wait for the lease to end."""
        with self._writing() as connection:
            outbox.release(connection, self._owner)

    def release_predecessors(self) -> None:
        """Release the claims of this folder's previous owners: the current owner holds its lock, so they are dead."""
        with self._writing() as connection:
            outbox.release_all(connection, self._claim_prefix)

    def drain(self, progress: Callable[[int], None] = lambda _: None) -> int:
        """Drain until nothing is due; return the number of entries. Raises VectorsUnavailable in an outage."""
        processed = 0
        while count := self.drain_once():
            processed += count
            progress(processed)
        return processed

    def drain_once(self) -> int:
        """Process one batch; return its size. Zero also means that no other thread is working on one."""
        with self._draining:
            return self._drain_batch()

    def enqueue_project(self, project_id: str) -> None:
        """Enqueue every memory of a project; unchanged ones cost a comparison but no embedding."""
        last: int | None = 0
        while last is not None:
            with self.enqueueing(project_id) as connection:
                last = outbox.enqueue_slice(connection, project_id, after_seq=last, now_ms=clock.now_ms())

    @contextmanager
    def enqueueing(self, project_id: str) -> Iterator[Connection]:
        """Yield a connection for enqueueing that holds the write lock of the project's team, so that none deadlocks."""
        with self._database.read() as connection:
            sizes = outbox.sizes(connection, project_id)
        with rls_context.acting_for(sizes[0].team_id if sizes else None), self._database.write() as connection:
            yield connection

    def _writing(self) -> AbstractContextManager[Connection]:
        """Yield a connection to claim and acknowledge with: it locks single rows, so that drainers run in parallel."""
        return self._database.write(exclusive=False)

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

    def _mirror_project(self, project_id: str, entries: Sequence[OutboxEntry]) -> None:
        if self._is_empty(project_id):
            self._drop_collections(project_id, entries)
        elif self._is_of_another_model(project_id):
            self._wait_for_rebuild(project_id, entries)
        else:
            self._index_all(project_id, entries)

    def _drop_collections(self, project_id: str, entries: Sequence[OutboxEntry]) -> None:
        """Drop the collections of a project without memories: one call, however many there were."""
        for name in (
            collection_names.live(project_id),
            collection_names.staging(project_id),
            collection_names.retired(project_id),
        ):
            self._collections.drop(name)
        if not self._is_empty(project_id):  # another drainer may have indexed a new memory meanwhile
            self.refill(collection_names.live(project_id))
        with self._writing() as connection:
            outbox.acknowledge(connection, self._owner, entries)
        count = _ACKNOWLEDGE_ROWS
        while count == _ACKNOWLEDGE_ROWS:
            with self._writing() as connection:
                count = outbox.acknowledge_deletes(connection, project_id, limit=_ACKNOWLEDGE_ROWS)

    def _is_empty(self, project_id: str) -> bool:
        with self._database.read() as connection:
            sizes = outbox.sizes(connection, project_id)
        return not sizes or sizes[0].memories == 0

    def _is_of_another_model(self, project_id: str) -> bool:
        collection = self._collections.find(collection_names.live(project_id))
        if collection is not None and collection.model is None:
            _log.warning("foreign_collection_dropped", collection=collection.name)
            self._collections.drop(collection.name)
            self.refill(collection.name)
            return False
        return collection is not None and collection.model != self._writer.model

    def _wait_for_rebuild(self, project_id: str, entries: Sequence[OutboxEntry]) -> None:
        """Remove changed memories from the live collection; their new vectors belong into the one being rebuilt."""
        name = collection_names.live(project_id)
        self._collections.delete(name, list(self._collections.metadata(name, [entry.memory_id for entry in entries])))
        with self._writing() as connection:
            outbox.postpone(connection, self._owner, entries, until_ms=clock.now_ms() + _MODEL_PAUSE_MS)

    def _index_all(self, project_id: str, entries: Sequence[OutboxEntry]) -> None:
        """Index a group; if that fails, index its entries one by one to find the one at fault."""
        try:
            self._index(project_id, entries)
        except (*_OUTAGES, AppError):
            raise
        except Exception as failure:  # noqa: BLE001 - one bad row must not block the others
            if len(entries) == 1:
                self._fail(entries[0], failure)
                return
            for entry in entries:
                self._index_all(project_id, [entry])

    def _index(self, project_id: str, entries: Sequence[OutboxEntry]) -> None:
        name = collection_names.live(project_id)
        memory_ids = [entry.memory_id for entry in entries]
        with self._database.read() as connection:
            rows = outbox.texts(connection, project_id, memory_ids)
        deleted_ids = [memory_id for memory_id in memory_ids if memory_id not in rows]
        update = self._writer.prepare(name, list(rows.values()), deleted_ids)
        with self.swap_lock:
            with self._database.read() as connection:
                until_ms = clock.now_ms() + WRITE_MARGIN_MS
                current = outbox.still_claimed(connection, self._owner, entries, until_ms=until_ms)
            self._writer.apply(name, update, {entry.memory_id for entry in current})
            with self._writing() as connection:
                outbox.acknowledge(connection, self._owner, current)
                outbox.postpone(connection, self._owner, entries, until_ms=0)

    def _fail(self, entry: OutboxEntry, failure: Exception) -> None:
        """Record a failed attempt, unless the whole index is at fault: then no entry's attempts are counted."""
        if isinstance(failure, VectorsUnavailable):
            self._check_health()
        attempts = entry.attempts + 1
        retry_at_ms = clock.now_ms() + _backoff_ms(attempts) if attempts < MAX_ATTEMPTS else None
        error = f"{type(failure).__name__}: {failure}"[:300]
        _log.warning("memory_not_mirrored", memory=entry.memory_id, attempts=attempts, set_aside=retry_at_ms is None)
        with self._writing() as connection:
            outbox.defer(connection, self._owner, entry, error=error, retry_at_ms=retry_at_ms)

    def _check_health(self) -> None:
        """Raise VectorsUnavailable when not even a plain text can be embedded, or Chroma refuses every request."""
        self._writer.embed_plain_text()
        self._collections.names()


def _by_project(entries: Sequence[OutboxEntry]) -> dict[str, list[OutboxEntry]]:
    grouped: dict[str, list[OutboxEntry]] = defaultdict(list)
    for entry in entries:
        grouped[entry.project_id].append(entry)
    return grouped


def _backoff_ms(attempts: int) -> int:
    """Return a pause that doubles with each attempt, jittered so that failed entries do not all retry at once."""
    return round(random.uniform(0.5, 1.0) * 2_000 * (1 << attempts))  # noqa: S311 - jitter, not a secret
