"""What the legs of a search agreed on: one ranking, and what each of them said."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from app.retrieval.ranking import Vector
from app.services.search.lexical import Ranked
from app.store.fulltext import Seqs

Leg = Literal["keyword", "semantic"]


@dataclass(frozen=True, slots=True)
class Share:
    """What one leg said of a memory: its rank (from 1), its own score, and the leg's weight in the whole."""

    leg: Leg
    rank: int
    score: float
    weight: float


@dataclass(frozen=True, slots=True)
class Voice:
    """A leg's own ranking, and its weight in the whole."""

    leg: Leg
    weight: float
    ranked: Ranked

    def shares(self, seqs: Seqs) -> dict[int, Share]:
        """Return what the leg said of memories, of those that it found."""
        return {
            int(self.ranked.seqs[place]): Share(self.leg, place + 1, float(self.ranked.scores[place]), self.weight)
            for place in np.flatnonzero(np.isin(self.ranked.seqs, seqs)).tolist()
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """Everything that was found, in the order to show it, with scores of 0…1."""

    seqs: Seqs
    scores: Vector
    voices: tuple[Voice, ...]

    def only(self, places: npt.NDArray[np.intp]) -> "Verdict":
        """Return those places, in that order."""
        return replace(self, seqs=self.seqs[places], scores=self.scores[places])
