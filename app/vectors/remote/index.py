"""The vector index of a process that only queries it: another process owns and maintains it."""

import threading
from contextlib import suppress
from typing import Final

from app.store.database import Database
from app.vectors.chroma.collections import Collections
from app.vectors.chroma.connection import Connection
from app.vectors.chroma.vacuum import StopCheck
from app.vectors.errors import NotInitialized, VectorsUnavailable
from app.vectors.index import Mode, VectorIndexConfig, VectorState
from app.vectors.probe import ProbeResult, probe
from app.vectors.query.semantic_search import SemanticSearch
from app.vectors.query.staleness import PendingChanges
from app.vectors.remote.client import IndexOwnerClient, IndexStatus

_POLL_SECONDS: Final = 0.25
_INITIAL_STATUS: Final = IndexStatus("connecting", None, 0.0)


class _OwnersServer:
    """The owner's Chroma. A restarted one has a new address, so it is requested for each connection."""

    def __init__(self, owner: IndexOwnerClient, *, open_collections: int) -> None:
        self.open_collections = open_collections
        self._owner = owner
        self._address = ""

    def address(self) -> str:
        """Request Chroma's address."""
        self._address = self._owner.address()
        return self._address

    def renew(self) -> None:
        """Request a restart."""
        self._owner.renew(self._address)

    def vacuum(self, check_stop: StopCheck) -> None:
        """Raise NotInitialized: only the owner may vacuum."""
        raise NotInitialized("The vector folder belongs to another process.")

    def close(self) -> None:
        """Do nothing: other processes use it."""


class RemoteIndex:
    """Semantic search in the index of another process, which decides for all of them what can be answered."""

    def __init__(
        self, database: Database, config: VectorIndexConfig, owner: IndexOwnerClient, *, open_collections: int
    ) -> None:
        """`open_collections` is this process's share of the collections that Chroma may hold in memory."""
        self.mode: Mode = config.mode
        self.embedder = config.embedder
        self._owner = owner
        server = _OwnersServer(owner, open_collections=open_collections if config.mode == "embedded" else 0)
        self._connection = Connection(
            server, client_config=config.client_config, backoff_seconds=config.backoff_seconds
        )
        self.collections = Collections(
            self._connection, on_lost=self._report_lost, open_collections=server.open_collections
        )
        self.semantic_search = SemanticSearch(
            self.collections,
            config.embedder,
            earlier=config.earlier,
            pending_changes=lambda project_id: PendingChanges.of(database, project_id),
            require=owner.require,
        )
        self._status = _INITIAL_STATUS
        self._stop = threading.Event()
        self._polling: threading.Thread | None = None

    @property
    def state(self) -> VectorState:
        """The last known state of the index, or of this process's connection while that is not ready."""
        own = self._connection.state
        return self._status.state if own == "ready" else own

    @property
    def last_error(self) -> str | None:
        """The last error, of this process or of the owner; None while all is well."""
        return self._connection.last_error or self._status.last_error

    @property
    def backoff_seconds(self) -> float:
        """For how long calls will still be refused."""
        return max(self._connection.backoff_seconds, self._status.backoff_seconds)

    def start(self) -> None:
        """Start connecting and polling the owner's status, in the background."""
        self._polling = threading.Thread(target=self._poll, name="follower", daemon=True)
        self._polling.start()

    def probe(self) -> ProbeResult:
        """Run the stages connect, list, embed and query."""
        return probe(self.collections, self.embedder)

    def close(self) -> None:
        """Close the connection; Chroma keeps running."""
        self._stop.set()
        if self._polling is not None:
            self._polling.join(1.0)
        self._connection.close()

    def _poll(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            with suppress(VectorsUnavailable):  # retried in the next round; the state shows it meanwhile
                self._status = self._owner.status()
                self.collections.connect()

    def _report_lost(self, name: str) -> None:
        """Report a lost collection to the owner, unless a rebuild has merely replaced it."""
        if self.collections.find(name, fresh=True) is None:
            self._owner.request_audit()
