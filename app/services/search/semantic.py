"""Semantic search: ids and cosines from the vector index, rows and filters from the database."""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from app.retrieval import calibration, scripts, text
from app.retrieval.calibration import CALIBRATED_SCRIPT, SemanticScores, SimilarityCalibration
from app.retrieval.ranking import Vector
from app.services.search.query import Query
from app.services.search.results import Candidates
from app.store.database import Database
from app.store.fulltext import FullText, RankingRow
from app.vectors import embedding
from app.vectors.embedding import Embedder
from app.vectors.errors import TimedOut
from app.vectors.query.semantic_search import SemanticMatch, SemanticSearch

T = TypeVar("T")

TIME_LIMIT_SECONDS: Final = 2.0
CANDIDATES: Final = 100
WIDENING: Final = 5
MAX_CANDIDATES: Final = 10_000
READABLE_SHARE: Final = 0.5
"""A query counts as written in a script when at least this share of its words is."""
_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class PendingSearch:
    """A query sent to the vector index, whose matches must arrive by `deadline` (monotonic seconds)."""

    query: str
    project_ids: Sequence[str]
    matches: Future[list[SemanticMatch]]
    deadline: float


class SemanticRetriever:
    """The semantic search of one database. Its methods raise VectorsUnavailable within the time limit.

    None of them waits for the index inside a transaction.
    """

    def __init__(self, full_text: FullText, search: SemanticSearch, embedder: Embedder) -> None:
        self._full_text = full_text
        self._search = search
        self._embedder = embedder
        self._calibration = embedding.Lazy(self._calibrate)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="semantic-search")

    def start(self, project_ids: Sequence[str], query: str) -> PendingSearch:
        """Send a query to the index without waiting for it."""
        query = query[: text.MAX_QUERY_CHARS]
        deadline = time.monotonic() + TIME_LIMIT_SECONDS
        return PendingSearch(query, project_ids, self._send(project_ids, query, CANDIDATES, deadline), deadline)

    def candidates(self, database: Database, query: Query, pending: PendingSearch) -> Candidates:
        """Return the memories closest to the query that pass its filters; fetches more until there are enough."""
        limit, matches = CANDIDATES, _wait(pending.matches, pending.deadline)
        while True:
            candidates = self._in_scope(database, query, matches)
            if len(candidates.seqs) >= CANDIDATES or len(matches) < limit or limit >= MAX_CANDIDATES:
                return candidates
            limit = min(limit * WIDENING, MAX_CANDIDATES)
            more = self._send(pending.project_ids, pending.query, limit, pending.deadline)
            matches = _wait(more, pending.deadline)

    def score(self, pending: PendingSearch, rows: Sequence[RankingRow], candidates: Candidates) -> SemanticScores:
        """Score memories by their exact cosines; those that are not indexed yet count as the most distant one."""
        known = dict(zip(candidates.seqs.tolist(), candidates.scores.tolist(), strict=True))
        known |= self._exact_cosines(pending, [row for row in rows if row.seq not in known])
        most_distant = min(known.values(), default=0.0)
        return self.interpret(pending, np.array([known.get(row.seq, most_distant) for row in rows]))

    def interpret(self, pending: PendingSearch, cosines: Vector) -> SemanticScores:
        """Return what cosines mean with this model and for this query."""
        model = self._calibration.get()  # known as soon as there are candidates
        calibrated_share = scripts.readable_share(pending.query, CALIBRATED_SCRIPT.__eq__)
        threshold = model.threshold(cosines, is_calibrated_script=calibrated_share >= READABLE_SHARE)
        readable_share = scripts.readable_share(pending.query, self._search.supports_script)
        return SemanticScores(cosines, model.similarities(cosines), cosines >= threshold, readable_share)

    def close(self) -> None:
        """Release the threads, and drop the searches still waiting for one."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _send(self, project_ids: Sequence[str], query: str, limit: int, deadline: float) -> Future[list[SemanticMatch]]:
        timeout_seconds = max(deadline - time.monotonic(), 0.0)
        return self._threads.submit(self._fetch, project_ids, query, limit, timeout_seconds)

    def _fetch(self, project_ids: Sequence[str], query: str, limit: int, timeout_seconds: float) -> list[SemanticMatch]:
        self._calibration.get()
        return self._search.candidates(project_ids, query, limit=limit, timeout_seconds=timeout_seconds)

    def _calibrate(self) -> SimilarityCalibration:
        questions, answers = zip(*calibration.QUESTIONS_AND_ANSWERS, strict=True)
        vectors = np.stack([self._embedder.embed_query(question) for question in questions])
        return calibration.calibrate(vectors, self._embedder.embed(answers))

    def _in_scope(self, database: Database, query: Query, matches: Sequence[SemanticMatch]) -> Candidates:
        """Keep the matches that are in the projects in scope and pass the filters."""
        cosines = {match.memory_id: match.cosine for match in matches}
        with database.read() as connection:
            seqs = self._full_text.seqs_by_id(connection, query.scope, list(cosines), query.filters)
        return Candidates.best_first(
            "semantic",
            np.array(list(seqs.values()), np.int64),
            np.array([cosines[memory_id] for memory_id in seqs], np.float64),
        )

    def _exact_cosines(self, pending: PendingSearch, rows: Sequence[RankingRow]) -> dict[int, float]:
        """Return the exact cosines of memories, by `seq`, as far as they are indexed."""
        seqs: dict[str, dict[str, int]] = {}
        for row in rows:
            seqs.setdefault(row.project_id, {})[row.id] = row.seq
        sent = {
            project_id: self._threads.submit(self._search.cosines, project_id, pending.query, list(by_id))
            for project_id, by_id in seqs.items()
        }
        return {
            seqs[project_id][memory_id]: cosine
            for project_id, future in sent.items()
            for memory_id, cosine in _wait(future, pending.deadline).items()
        }


def _wait(future: Future[T], deadline: float) -> T:
    try:
        return future.result(timeout=max(deadline - time.monotonic(), 0.0))
    except FutureTimeout as cause:
        future.cancel()
        raise TimedOut("The vector index did not answer in time.") from cause
