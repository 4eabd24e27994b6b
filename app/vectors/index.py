"""The vector index of one server: wires its parts together and keeps it in sync in a background thread."""

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

import structlog

from app.errors import Unavailable
from app.store.database import Database
from app.vectors.chroma.client_config import DEFAULT, ClientConfig
from app.vectors.chroma.collections import Collections, Model
from app.vectors.chroma.connection import BACKOFF_SECONDS, Connection
from app.vectors.chroma.server import ChildServer, RemoteServer, Server
from app.vectors.embedding import Embedder
from app.vectors.embedding.background import BackgroundEmbedder
from app.vectors.errors import EmbedderFailed, IndexBehind, NotInitialized, VectorsUnavailable
from app.vectors.probe import ProbeResult, probe
from app.vectors.query.semantic_search import SemanticSearch
from app.vectors.query.staleness import PendingChanges
from app.vectors.sync.mirror import Mirror
from app.vectors.sync.repair import Repair
from app.vectors.sync.writer import Writer

_log = structlog.get_logger(__name__)

VectorState = Literal["off", "connecting", "ready", "unavailable"]
Mode = Literal["embedded", "http"]

_POLL_SECONDS: Final = 0.25
_PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorIndexConfig:
    """Where the index is stored and which model embeds; `earlier` are models that existing collections may use."""

    mode: Mode
    folder: Path
    url: str
    embedder: Embedder
    earlier: Sequence[Embedder] = ()
    threads: int = os.cpu_count() or 1
    backoff_seconds: float = BACKOFF_SECONDS
    client_config: ClientConfig = DEFAULT


class ServerStopping(Exception):
    """The server is stopping: long-running work is abandoned and resumes at the next start."""


class Index(Protocol):
    """A vector index, whether this process or another one keeps it in sync."""

    @property
    def mode(self) -> Mode:
        """Whether Chroma is embedded or a separate server."""

    @property
    def embedder(self) -> Embedder:
        """The model of new vectors."""

    @property
    def semantic_search(self) -> SemanticSearch:
        """Finds memories by meaning."""

    @property
    def state(self) -> VectorState:
        """The state of the index. Never blocks."""

    @property
    def last_error(self) -> str | None:
        """The last error; None while all is well."""

    @property
    def backoff_seconds(self) -> float:
        """For how long calls will still be refused."""

    def start(self) -> None:
        """Start the background work."""

    def probe(self) -> ProbeResult:
        """Run the stages connect, list, embed and query."""

    def close(self) -> None:
        """Stop the background work and close the connections."""


class VectorIndex:
    """The index that this process maintains. Commands use it without start(): then nothing runs in the background."""

    def __init__(self, database: Database, config: VectorIndexConfig, *, owner: str = "cmem-server") -> None:
        self.server: Server = (
            ChildServer(config.folder, owner_name=owner) if config.mode == "embedded" else RemoteServer(config.url)
        )
        self.mode: Mode = config.mode
        self.embedder = config.embedder
        self._owns_folder = config.mode == "embedded"
        self._connection = Connection(
            self.server, client_config=config.client_config, backoff_seconds=config.backoff_seconds
        )
        self._audit_due = threading.Event()
        self._audit_due.set()
        self.collections = Collections(
            self._connection,
            on_created=lambda name: self.mirror.refill(name),
            on_lost=lambda _: self.request_audit(),
            open_collections=self.server.open_collections,
        )
        self._embedding = BackgroundEmbedder(config.embedder, threads=config.threads)
        self._writer = Writer(self.collections, self._embedding)
        self.mirror = Mirror(database, self.collections, self._writer, claim_prefix=_claim_prefix(database, config))
        self.repair = Repair(database, self.collections, self._writer, self.mirror)
        self.semantic_search = SemanticSearch(
            self.collections,
            config.embedder,
            earlier=config.earlier,
            pending_changes=lambda project_id: PendingChanges.of(database, project_id),
            require=self.require,
        )
        self._stop = threading.Event()
        self._mirroring: threading.Thread | None = None
        self._rebuilding: threading.Thread | None = None
        self._last_failure: VectorsUnavailable | None = None
        self._refilling: frozenset[str] = frozenset()
        self._has_connected = False
        self._embeds = False

    @property
    def state(self) -> VectorState:
        """The state of the index; never blocks. It is ready once connected and audited, and while the model works."""
        state = self._connection.state
        if state != "ready" or self._mirroring is None:
            return state
        if isinstance(self._last_failure, EmbedderFailed):
            return "unavailable"
        return "connecting" if self._audit_due.is_set() or not self._embeds else "ready"

    @property
    def last_error(self) -> str | None:
        """The last error; None while all is well."""
        return self._connection.last_error or (str(self._last_failure) if self._last_failure else None)

    @property
    def backoff_seconds(self) -> float:
        """For how long calls will still be refused."""
        return self._connection.backoff_seconds

    @property
    def model(self) -> Model:
        """The model of new vectors."""
        return Model.of(self.embedder)

    def start(self) -> None:
        """Start connecting and indexing, in the background."""
        self._mirroring = threading.Thread(target=self._keep_in_sync, name="mirror", daemon=True)
        self._mirroring.start()

    def close(self, *, grace_seconds: float = 3.0) -> None:
        """Stop; the current batch may finish within the grace period, else it stays pending."""
        self._stop.set()
        deadline = time.monotonic() + grace_seconds
        for thread in (self._mirroring, self._rebuilding):
            if thread is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        self._connection.close()
        self._embedding.close()
        with suppress(Unavailable):  # the claims then expire on their own
            self.mirror.release()

    def connect(self) -> None:
        """Connect, and release the claims of dead owners of the folder. Raises VectorsUnavailable."""
        self.collections.connect()
        if self._owns_folder and not self._has_connected:
            self.mirror.release_predecessors()
            self._has_connected = True

    def probe(self) -> ProbeResult:
        """Run the stages connect, list, embed and query."""
        return probe(self.collections, self.embedder)

    def drop_orphan_collections(self, *, dry_run: bool) -> int:
        """Drop the collections of deleted projects, if the folder is our own; return how many.

        On a shared server a collection may belong to another installation.
        """
        names = self.repair.orphan_collections() if self._owns_folder else []
        for name in names if not dry_run else ():
            self.collections.drop(name)
        return len(names)

    def vacuum(self, check_stop: Callable[[], None]) -> None:
        """Reclaim the disk space of deleted vectors, if the folder is our own. Meanwhile searches are lexical only."""
        self._connection.vacuum(check_stop)

    def require(self, project_ids: Sequence[str]) -> None:
        """Raise the reason why the index cannot answer for these projects, if there is one.

        Without start() there is none: commands know themselves what is missing.
        """
        if self._mirroring is None:
            return
        if self._audit_due.is_set():
            reason: VectorsUnavailable = NotInitialized("The vector index is being checked.")
        elif not self._refilling.isdisjoint(project_ids):
            reason = IndexBehind("The vector index is being refilled.")
        else:
            return
        failure = self._last_failure or reason
        raise type(failure)(str(failure))

    def request_audit(self) -> None:
        """Audit all collections before the next search is answered."""
        self._audit_due.set()

    def check_stop(self, _: int = 0) -> None:
        """Raise ServerStopping once the server is stopping; long-running work calls it regularly."""
        if self._stop.is_set():
            raise ServerStopping

    def _keep_in_sync(self) -> None:
        """Drain the outbox until close(). An outage pauses the thread, but nothing ends it."""
        while not self._stop.is_set():
            self._stop.wait(self._round())

    def _round(self) -> float:
        """Index one batch; return how many seconds to pause."""
        try:
            self.connect()
            if self._audit_due.is_set():
                self._audit()
            drained = self.mirror.drain_once()
            self._try_embedder()
        except VectorsUnavailable as outage:
            if str(outage) != str(self._last_failure):
                _log.warning("mirror_paused", reason=str(outage))
            self._last_failure = outage
            if isinstance(outage, EmbedderFailed):
                self._embeds = False
            else:
                self._audit_due.set()
            return _PAUSE_SECONDS
        except Unavailable:  # the database has logged it
            return _PAUSE_SECONDS
        except Exception:  # noqa: BLE001 - one failed round must not end the thread
            _log.exception("mirror_round_failed")
            return _PAUSE_SECONDS
        self._last_failure = None
        if not drained:
            self._refilling = frozenset()
        return 0.0 if drained else _POLL_SECONDS

    def _try_embedder(self) -> None:
        """Embed a text once, and again after a failure, to detect a model that cannot be loaded before it is needed."""
        if not self._embeds:
            self._writer.embed_plain_text()
            self._embeds = True

    def _audit(self) -> None:
        """Refill empty collections, rebuild those of another model, and drop those of deleted projects."""
        audit = self.repair.audit()
        self._refilling = frozenset(audit.empty)
        self._audit_due.clear()
        try:
            for project_id in audit.empty:
                self.mirror.enqueue_project(project_id)
        except Unavailable:
            self._audit_due.set()
            raise
        # on a shared server a collection may belong to another installation
        for name in audit.orphans if self._owns_folder else ():
            self.collections.drop(name)
        if audit.other_model and (self._rebuilding is None or not self._rebuilding.is_alive()):
            self._rebuilding = threading.Thread(
                target=self._rebuild, args=(audit.other_model,), name="mirror-rebuild", daemon=True
            )
            self._rebuilding.start()

    def _rebuild(self, project_ids: Sequence[str]) -> None:
        """Rebuild the collections of a changed model one after the other; the old ones keep answering."""
        for project_id in project_ids:
            try:
                self.check_stop()
                self.repair.rebuild_outdated(project_id, self.check_stop)
            except ServerStopping:
                return
            except VectorsUnavailable as outage:
                _log.warning("rebuild_paused", project=project_id, reason=str(outage))
                self._audit_due.set()
                return
            except Exception:  # noqa: BLE001 - the other projects may still succeed
                _log.exception("rebuild_failed", project=project_id)


def _claim_prefix(database: Database, config: VectorIndexConfig) -> str:
    """Return the claim prefix that successive owners of the same folder share.

    A SQLite database has a single folder; the replicas of a PostgreSQL database may have one each.
    """
    if database.dialect == "sqlite":
        return ""
    return f"{socket.gethostname()}:{config.folder} " if config.mode == "embedded" else "replica "
