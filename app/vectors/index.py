"""The vector index of one server: joins its parts, and keeps it in step in the background. Never fails its caller."""

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
from app.vectors.chroma.client_config import STANDARD, Access
from app.vectors.chroma.collections import Collections, Model
from app.vectors.chroma.connection import BACKOFF_SECONDS, Connection
from app.vectors.chroma.server import ChildServer, RemoteServer, Server
from app.vectors.embedding import Embedder
from app.vectors.embedding.background import BackgroundEmbedding
from app.vectors.errors import EmbedderFailed, IndexBehind, NotInitialized, VectorsUnavailable
from app.vectors.probe import Probed, probe
from app.vectors.query.semantic_search import Meaning
from app.vectors.query.staleness import Unsettled
from app.vectors.sync.mirror import Mirror
from app.vectors.sync.repair import Repair
from app.vectors.sync.writer import Writer

_log = structlog.get_logger(__name__)

VectorState = Literal["off", "connecting", "ready", "unavailable"]
Mode = Literal["embedded", "http"]

_POLL_SECONDS: Final = 0.25
_PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Where the index lives and which model fills it; `earlier` are models that older collections may hold."""

    mode: Mode
    folder: Path
    url: str
    embedder: Embedder
    earlier: Sequence[Embedder] = ()
    threads: int = os.cpu_count() or 1
    backoff_seconds: float = BACKOFF_SECONDS
    access: Access = STANDARD


class Interrupted(Exception):
    """The server stops: long work ends where it is, and goes on at the next start."""


class Index(Protocol):
    """What answers questions of meaning, whether this process keeps it in step or another one does."""

    @property
    def mode(self) -> Mode:
        """Who serves Chroma."""

    @property
    def embedder(self) -> Embedder:
        """The model that new vectors are of."""

    @property
    def meaning(self) -> Meaning:
        """What finds memories near a question."""

    @property
    def state(self) -> VectorState:
        """Say where the index stands, without waiting for anything."""

    @property
    def last_error(self) -> str | None:
        """What went wrong last; None while all is well."""

    @property
    def backoff_seconds(self) -> float:
        """How long the index will not be asked."""

    def start(self) -> None:
        """Begin what is done in the background."""

    def probe(self) -> Probed:
        """Go through connect, list, embed and query."""

    def close(self) -> None:
        """End it."""


class VectorIndex:
    """Everything about meaning. Without start() it does only what it is asked to: that is how commands use it."""

    def __init__(self, database: Database, choice: Choice, *, owner: str = "cmem-server") -> None:
        self.server: Server = (
            ChildServer(choice.folder, owner_name=owner) if choice.mode == "embedded" else RemoteServer(choice.url)
        )
        self.mode: Mode = choice.mode
        self.embedder = choice.embedder
        self._owns_folder = choice.mode == "embedded"
        self._connection = Connection(self.server, access=choice.access, backoff_seconds=choice.backoff_seconds)
        self._survey_due = threading.Event()
        self._survey_due.set()
        self.collections = Collections(
            self._connection,
            on_made=lambda name: self.mirror.refill(name),
            on_gone=lambda _: self.look_around_soon(),
            open_collections=self.server.open_collections,
        )
        self._embedding = BackgroundEmbedding(choice.embedder, threads=choice.threads)
        self._writer = Writer(self.collections, self._embedding)
        self.mirror = Mirror(database, self.collections, self._writer, place=_place(database, choice))
        self.repair = Repair(database, self.collections, self._writer, self.mirror)
        self.meaning = Meaning(
            self.collections,
            choice.embedder,
            earlier=choice.earlier,
            unsettled=lambda project_id: Unsettled.of(database, project_id),
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
        """Say where the index stands, without waiting for anything.

        Ready is connected, looked through, and with a model that embeds.
        """
        state = self._connection.state
        if state != "ready" or self._mirroring is None:
            return state
        if isinstance(self._last_failure, EmbedderFailed):
            return "unavailable"
        return "connecting" if self._survey_due.is_set() or not self._embeds else "ready"

    @property
    def last_error(self) -> str | None:
        """What went wrong last; None while all is well."""
        return self._connection.last_error or (str(self._last_failure) if self._last_failure else None)

    @property
    def backoff_seconds(self) -> float:
        """How long the index will not be asked."""
        return self._connection.backoff_seconds

    @property
    def model(self) -> Model:
        """The model that new vectors are of."""
        return Model.of(self.embedder)

    def start(self) -> None:
        """Begin to connect and to mirror, in the background."""
        self._mirroring = threading.Thread(target=self._keep_in_step, name="mirror", daemon=True)
        self._mirroring.start()

    def close(self, *, grace_seconds: float = 3.0) -> None:
        """Finish the batch at hand if it is done in time; what is not stays pending."""
        self._stop.set()
        deadline = time.monotonic() + grace_seconds
        for thread in (self._mirroring, self._rebuilding):
            if thread is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        self._connection.close()
        self._embedding.close()
        with suppress(Unavailable):  # then the claims end by themselves, when their time is over
            self.mirror.release()

    def connect(self) -> None:
        """Connect, and give back what dead owners of the folder had claimed. Raises VectorsUnavailable."""
        self.collections.connect()
        if self._owns_folder and not self._has_connected:
            self.mirror.release_predecessors()
            self._has_connected = True

    def probe(self) -> Probed:
        """Go through connect, list, embed and query."""
        return probe(self.collections, self.embedder)

    def drop_ownerless(self, *, dry_run: bool) -> int:
        """Drop the collections of projects that are no more from a folder of ours; return how many.

        On a shared server a collection may be that of another installation.
        """
        names = self.repair.ownerless() if self._owns_folder else []
        for name in names if not dry_run else ():
            self.collections.drop(name)
        return len(names)

    def vacuum(self, go_on: Callable[[], None]) -> None:
        """Give back what deleted vectors took of a folder of ours. Searches go by words alone meanwhile."""
        self._connection.vacuum(go_on)

    def require(self, project_ids: Sequence[str]) -> None:
        """Raise what keeps the index from answering for these projects, if it is kept in step from here at all."""
        if self._mirroring is None:
            return
        if self._survey_due.is_set():
            missing: VectorsUnavailable = NotInitialized("The vector index is being looked through.")
        elif not self._refilling.isdisjoint(project_ids):
            missing = IndexBehind("The vector index is being filled again.")
        else:
            return
        failure = self._last_failure or missing
        raise type(failure)(str(failure))

    def look_around_soon(self) -> None:
        """Have all collections looked through before the next search is answered."""
        self._survey_due.set()

    def go_on(self, _: int = 0) -> None:
        """Raise Interrupted once the server stops: the heartbeat of long work."""
        if self._stop.is_set():
            raise Interrupted

    def _keep_in_step(self) -> None:
        """Drain until told to stop. An outage pauses it, nothing ends it."""
        while not self._stop.is_set():
            self._stop.wait(self._round())

    def _round(self) -> float:
        """Do one batch; return how long to pause."""
        try:
            self.connect()
            if self._survey_due.is_set():
                self._look_around()
            taken = self.mirror.drain_once()
            self._try_embedder()
        except VectorsUnavailable as outage:
            if str(outage) != str(self._last_failure):
                _log.warning("mirror_paused", reason=str(outage))
            self._last_failure = outage
            if isinstance(outage, EmbedderFailed):
                self._embeds = False
            else:
                self._survey_due.set()
            return _PAUSE_SECONDS
        except Unavailable:  # the database says so itself
            return _PAUSE_SECONDS
        except Exception:  # noqa: BLE001 - one failed round must not end the rounds to come
            _log.exception("mirror_round_failed")
            return _PAUSE_SECONDS
        self._last_failure = None
        if not taken:
            self._refilling = frozenset()
        return 0.0 if taken else _POLL_SECONDS

    def _try_embedder(self) -> None:
        """Embed something once, and again after a failure: a model that cannot be loaded shows before it is needed."""
        if not self._embeds:
            self._writer.embed_plain_text()
            self._embeds = True

    def _look_around(self) -> None:
        """Ask for what is missing: a collection that is empty, of another model, or of a project that is no more."""
        survey = self.repair.survey()
        self._refilling = frozenset(survey.empty)
        self._survey_due.clear()
        try:
            for project_id in survey.empty:
                self.mirror.enqueue_project(project_id)
        except Unavailable:
            self._survey_due.set()
            raise
        # On a shared server a collection may be that of another installation.
        for name in survey.ownerless if self._owns_folder else ():
            self.collections.drop(name)
        if survey.other_model and (self._rebuilding is None or not self._rebuilding.is_alive()):
            self._rebuilding = threading.Thread(
                target=self._rebuild, args=(survey.other_model,), name="mirror-rebuild", daemon=True
            )
            self._rebuilding.start()

    def _rebuild(self, project_ids: Sequence[str]) -> None:
        """Make the collections of a changed model anew, one after the other, while the old ones answer."""
        for project_id in project_ids:
            try:
                self.go_on()
                self.repair.rebuild_outdated(project_id, self.go_on)
            except Interrupted:
                return
            except VectorsUnavailable as outage:
                _log.warning("rebuild_paused", project=project_id, reason=str(outage))
                self._survey_due.set()
                return
            except Exception:  # noqa: BLE001 - the next project is another matter
                _log.exception("rebuild_failed", project=project_id)


def _place(database: Database, choice: Choice) -> str:
    """Return where drainers follow each other, one at a time: a folder, of which a file has one and a server many."""
    if database.dialect == "sqlite":
        return ""
    return f"{socket.gethostname()}:{choice.folder} " if choice.mode == "embedded" else "replica "
