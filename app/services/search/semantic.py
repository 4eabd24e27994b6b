"""Search by meaning, beside the search by words: ids from the vector index, rows and filters from SQL."""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from app.retrieval import calibration, scripts, text
from app.retrieval.calibration import Nearness
from app.retrieval.ranking import Vector
from app.services.search.lexical import Question
from app.store.database import Database
from app.store.fulltext import FullText, Row, Seqs
from app.vectors import embedding
from app.vectors.embedding import Embedder
from app.vectors.errors import TimedOut
from app.vectors.query.semantic_search import Candidate, Meaning

T = TypeVar("T")

TIME_LIMIT_SECONDS: Final = 2.0
CANDIDATES: Final = 100
WIDENING: Final = 5
MOST_CANDIDATES: Final = 10_000
READABLE: Final = 0.5
"""With less of a question in scripts that the model reads, nearness alone finds nothing."""
_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class Near:
    """Memories near a question, ascending by `seq`, with their cosines."""

    seqs: Seqs
    cosines: Vector


@dataclass(frozen=True, slots=True)
class Pending:
    """A question that is on its way to the index; what it finds must be there by `deadline` (monotonic seconds)."""

    query: str
    project_ids: Sequence[str]
    found: Future[list[Candidate]]
    deadline: float


class MeaningLeg:
    """The search by meaning of one database. Every verb raises VectorsUnavailable within the time limit.

    None of them waits for the index inside a transaction.
    """

    def __init__(self, full_text: FullText, meaning: Meaning, embedder: Embedder) -> None:
        self._full_text = full_text
        self._meaning = meaning
        self._embedder = embedder
        self._nearness = embedding.Once(self._measured)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="meaning")

    def begin(self, project_ids: Sequence[str], query: str) -> Pending:
        """Send a question to the index, and return at once."""
        query = query[: text.MAX_QUERY_CHARS]
        deadline = time.monotonic() + TIME_LIMIT_SECONDS
        return Pending(query, project_ids, self._send(project_ids, query, CANDIDATES, deadline), deadline)

    def finish(self, database: Database, pending: Pending, question: Question) -> Near:
        """Return what was found of these projects and passes the filters; asks for more until there is enough."""
        asked, found = CANDIDATES, _wait(pending.found, pending.deadline)
        while True:
            near = self._let_through(database, found, question)
            if len(near.seqs) >= CANDIDATES or len(found) < asked or asked >= MOST_CANDIDATES:
                return near
            asked = min(asked * WIDENING, MOST_CANDIDATES)
            more = self._send(pending.project_ids, pending.query, asked, pending.deadline)
            found = _wait(more, pending.deadline)

    def cosines(self, pending: Pending, rows: Sequence[Row]) -> dict[int, float]:
        """Return the exact cosines of memories, by `seq`, of those that the index knows."""
        by_project: dict[str, dict[str, int]] = {}
        for row in rows:
            by_project.setdefault(row.project_id, {})[row.id] = row.seq
        sent = {
            project_id: self._threads.submit(self._meaning.cosines, project_id, pending.query, list(seqs))
            for project_id, seqs in by_project.items()
        }
        return {
            by_project[project_id][memory_id]: cosine
            for project_id, future in sent.items()
            for memory_id, cosine in _wait(future, pending.deadline).items()
        }

    def nearness(self) -> Nearness:
        """Return what the model's cosines mean; known as soon as candidates are."""
        return self._nearness.get()

    def readable_share(self, query: str) -> float:
        """Return which share of a query the model can read, 0…1."""
        return scripts.readable_share(query[: text.MAX_QUERY_CHARS], self._meaning.reads)

    def close(self) -> None:
        """Let the threads go; questions that still wait are dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _send(self, project_ids: Sequence[str], query: str, limit: int, deadline: float) -> Future[list[Candidate]]:
        seconds = max(deadline - time.monotonic(), 0.0)
        return self._threads.submit(self._candidates, project_ids, query, limit, seconds)

    def _candidates(self, project_ids: Sequence[str], query: str, limit: int, seconds: float) -> list[Candidate]:
        self._nearness.get()
        return self._meaning.candidates(project_ids, query, limit=limit, seconds=seconds)

    def _measured(self) -> Nearness:
        questions, answers = zip(*calibration.QUESTIONS_AND_ANSWERS, strict=True)
        asked = np.stack([self._embedder.embed_query(question) for question in questions])
        return calibration.measured(asked, self._embedder.embed(answers))

    def _let_through(self, database: Database, found: Sequence[Candidate], question: Question) -> Near:
        cosines = {candidate.memory_id: candidate.cosine for candidate in found}
        with database.read() as connection:
            seqs = self._full_text.by_id(connection, question.scope, list(cosines), question.filters)
        by_seq = sorted((seq, cosines[memory_id]) for memory_id, seq in seqs.items())
        return Near(np.array([seq for seq, _ in by_seq], np.int64), np.array([cosine for _, cosine in by_seq]))


def _wait(future: Future[T], deadline: float) -> T:
    try:
        return future.result(timeout=max(deadline - time.monotonic(), 0.0))
    except FutureTimeout as cause:
        future.cancel()
        raise TimedOut("The vector index did not answer in time.") from cause
