"""The vector index of a process that answers from it and leaves its care to another one."""

import threading
from contextlib import suppress
from typing import Final

from app.store.database import Database
from app.vectors.chroma.collections import Collections
from app.vectors.chroma.connection import Connection
from app.vectors.chroma.vacuum import GoOn
from app.vectors.errors import NotInitialized, VectorsUnavailable
from app.vectors.index import Choice, Mode, VectorState
from app.vectors.probe import Probed, probe
from app.vectors.query.semantic_search import Meaning
from app.vectors.query.staleness import Unsettled
from app.vectors.remote.client import Keeper, Standing

_LOOK_EVERY_SECONDS: Final = 0.25
_NOT_HEARD_OF: Final = Standing("connecting", None, 0.0)


class _KeptServer:
    """Chroma where the keeper has it. A new child has a new address, so it is asked for at each connecting."""

    def __init__(self, keeper: Keeper, *, open_collections: int) -> None:
        self.open_collections = open_collections
        self._keeper = keeper
        self._address = ""

    def address(self) -> str:
        """Ask where Chroma answers."""
        self._address = self._keeper.address()
        return self._address

    def renew(self) -> None:
        """Ask for a fresh one."""
        self._keeper.renew(self._address)

    def vacuum(self, go_on: GoOn) -> None:
        """Refuse: the keeper does that."""
        raise NotInitialized("The vector folder belongs to another process.")

    def close(self) -> None:
        """Do nothing: others use it."""


class Follower:
    """Searches by meaning. What it may answer for is the keeper's word, so that every follower answers alike."""

    def __init__(self, database: Database, choice: Choice, keeper: Keeper, *, open_collections: int) -> None:
        """`open_collections` is this process's share of what Chroma may hold in memory."""
        self.mode: Mode = choice.mode
        self.embedder = choice.embedder
        self._keeper = keeper
        server = _KeptServer(keeper, open_collections=open_collections if choice.mode == "embedded" else 0)
        self._connection = Connection(server, access=choice.access, backoff_seconds=choice.backoff_seconds)
        self.collections = Collections(self._connection, on_gone=self._missed, open_collections=server.open_collections)
        self.meaning = Meaning(
            self.collections,
            choice.embedder,
            earlier=choice.earlier,
            unsettled=lambda project_id: Unsettled.of(database, project_id),
            require=keeper.require,
        )
        self._standing = _NOT_HEARD_OF
        self._stop = threading.Event()
        self._looking: threading.Thread | None = None

    @property
    def state(self) -> VectorState:
        """Say where the index stands, as last heard; our own connection comes first."""
        own = self._connection.state
        return self._standing.state if own == "ready" else own

    @property
    def last_error(self) -> str | None:
        """What went wrong last, here or at the keeper's."""
        return self._connection.last_error or self._standing.last_error

    @property
    def backoff_seconds(self) -> float:
        """How long the index will not be asked."""
        return max(self._connection.backoff_seconds, self._standing.backoff_seconds)

    def start(self) -> None:
        """Begin to connect, and to hear how the index stands."""
        self._looking = threading.Thread(target=self._look_now_and_again, name="follower", daemon=True)
        self._looking.start()

    def probe(self) -> Probed:
        """Go through connect, list, embed and query."""
        return probe(self.collections, self.embedder)

    def close(self) -> None:
        """Let go of the connection; Chroma goes on."""
        self._stop.set()
        if self._looking is not None:
            self._looking.join(1.0)
        self._connection.close()

    def _look_now_and_again(self) -> None:
        while not self._stop.wait(_LOOK_EVERY_SECONDS):
            with suppress(VectorsUnavailable):  # the next look may be better, and the state says how it is
                self._standing = self._keeper.standing()
                self.collections.connect()

    def _missed(self, name: str) -> None:
        """Tell the keeper of a lost collection. One that a rebuild has put another in the place of is not lost."""
        if self.collections.find(name, fresh=True) is None:
            self._keeper.look_around_soon()
