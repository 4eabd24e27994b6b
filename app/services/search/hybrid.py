"""Words and meaning together: every candidate of either leg is scored by both, then they are one ranking."""

from typing import Final

import numpy as np
import numpy.typing as npt

from app.retrieval import fusion, ranking, scripts, text
from app.retrieval.calibration import MEASURED_SCRIPT, Nearness
from app.retrieval.fusion import Evidence
from app.retrieval.ranking import Vector
from app.services.search.lexical import KeywordLeg, Question, Ranked, Readings
from app.services.search.results import Verdict, Voice
from app.services.search.semantic import READABLE, MeaningLeg, Near, Pending
from app.store.database import Database

KEYWORD_CANDIDATES: Final = 60


def fuse(
    database: Database, keyword: KeywordLeg, meaning: MeaningLeg, question: Question, words: Ranked, pending: Pending
) -> Verdict:
    """Return the ranking of what either leg found; raises VectorsUnavailable.

    Below the candidates that both legs have scored come the other memories that hold some of the words.
    """
    near = meaning.finish(database, pending, question)
    with database.read() as connection:
        readings = keyword.read(connection, question, np.union1d(words.seqs[:KEYWORD_CANDIDATES], near.seqs))
    cosines = _completed(meaning, readings, near, pending)
    evidence = Evidence(
        keyword=readings.judged.scores,
        cosine=cosines,
        presence=readings.judged.presence,
        sessions=[row.server_session_id for row in readings.rows],
        questions=[text.is_question(row.ending) for row in readings.rows],
    )
    readable_share = meaning.readable_share(pending.query)
    fused = fusion.fuse(evidence, question.worth, readable_share=readable_share)
    nearness = meaning.nearness()
    related = cosines >= (_least(nearness, pending, cosines) if readable_share >= READABLE else np.inf)

    upwards = fused.scores - fused.scores.min(initial=0.0)
    ranked = keyword.prefer_current(question, readings, upwards)
    places = np.searchsorted(readings.seqs, ranked.seqs)
    places = places[(evidence.keyword[places] > 0) | related[places]]
    scores = fusion.displayed(evidence, fused, nearness, places)

    rest = ~np.isin(words.seqs, readings.seqs)
    tail = np.minimum(ranking.displayed(words.scores[rest]), scores.min(initial=1.0))
    return Verdict(
        np.concatenate([readings.seqs[places], words.seqs[rest]]),
        np.concatenate([scores, tail]),
        (
            Voice("keyword", 1 - fused.meaning_weight, words),
            Voice("semantic", fused.meaning_weight, _by_cosine(readings, cosines, related, question)),
        ),
    )


def by_meaning_alone(database: Database, meaning: MeaningLeg, question: Question, pending: Pending) -> Verdict:
    """Return the ranking by nearness, of memories that have something to do with the question."""
    near, nearness = meaning.finish(database, pending, question), meaning.nearness()
    order = ranking.order(near.cosines, near.seqs)
    order = order[near.cosines[order] >= _least(nearness, pending, near.cosines)]
    ranked = Ranked(near.seqs[order], near.cosines[order], question.terms)
    return Verdict(ranked.seqs, nearness.shown(ranked.scores), (Voice("semantic", 1.0, ranked),))


def by_words_alone(words: Ranked) -> Verdict:
    """Return the ranking by words."""
    return Verdict(words.seqs, ranking.displayed(words.scores), (Voice("keyword", 1.0, words),))


def _least(nearness: Nearness, pending: Pending, cosines: Vector) -> float:
    measured = scripts.readable_share(pending.query, MEASURED_SCRIPT.__eq__)
    return nearness.least(cosines, is_measured_script=measured >= READABLE)


def _completed(meaning: MeaningLeg, readings: Readings, near: Near, pending: Pending) -> Vector:
    """The cosine of every candidate; those that are not in the index yet count as the farthest."""
    known = dict(zip(near.seqs.tolist(), near.cosines.tolist(), strict=True))
    known |= meaning.cosines(pending, [row for row in readings.rows if row.seq not in known])
    farthest = min(known.values(), default=0.0)
    return np.array([known.get(row.seq, farthest) for row in readings.rows])


def _by_cosine(readings: Readings, cosines: Vector, related: npt.NDArray[np.bool_], question: Question) -> Ranked:
    seqs, scores = readings.seqs[related], cosines[related]
    order = ranking.order(scores, seqs)
    return Ranked(seqs[order], scores[order], question.terms)
