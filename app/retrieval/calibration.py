"""What a cosine means: unrelated texts have a cosine of 0.05 with one model and of 0.73 with another.

Each model is calibrated once, on questions paired with the answers to other questions. Knows no particular model.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from app.retrieval.ranking import Vector

RELATED_DEVIATIONS: Final = 3.4
"""Questions about something else stay below this: with the default model, 95 of 100 have no closer memory."""
UNRELATED_DEVIATIONS: Final = 2.1
MAX_DEVIATIONS_BELOW_BEST: Final = 2.0
CALIBRATED_SCRIPT: Final = "Latn"

QUESTIONS_AND_ANSWERS: Final = (
    ("How do I bake bread without yeast?", "The bread rises with baking soda and buttermilk instead of yeast."),
    ("Who won the chess tournament?", "The final game of chess ended in a draw, so the tie was broken by blitz."),
    ("When does the train to the coast leave?", "Trains to the sea run every hour from the central station."),
    ("Why did the database time out?", "The connection pool was too small, so requests waited until they failed."),
    ("What colour is the new kitchen?", "They painted the kitchen walls a pale green."),
    ("How is the invoice paid?", "Payment is due within thirty days by bank transfer."),
    ("Which medicine helps against a cold?", "Rest and warm tea ease a runny nose."),
    ("How do volcanoes form?", "Molten rock rises through cracks in the crust of the earth."),
    ("Where is the key of the garden shed?", "The spade and the rake hang beside the door of the shed."),
    (
        "How can a function be called twice?",
        "def retry(call):\n    try:\n        return call()\n    except OSError:",
    ),
    ("What did the doctor say about the knee?", "Her leg must stay in plaster for six weeks."),
    ("Is the museum open on Mondays?", "The gallery closes at five and all day on Monday."),
)


@dataclass(frozen=True, slots=True)
class SemanticScores:
    """What a model says of a query and of candidates for it: `similarities` are their cosines mapped to 0…1.

    `readable_share` is the share of the query, 0…1, in scripts that the model reads.
    """

    cosines: Vector
    similarities: Vector
    are_related: npt.NDArray[np.bool_]
    readable_share: float


@dataclass(frozen=True, slots=True)
class SimilarityCalibration:
    """What cosines mean with one model: up to `unrelated` nothing, from `related` on that two texts share a subject.

    `deviation` is the standard deviation of the cosines of unrelated texts.
    """

    related: float
    unrelated: float
    deviation: float

    def threshold(self, cosines: Vector, *, is_calibrated_script: bool) -> float:
        """Return the cosine from which on a memory is related to a query, given the cosines of its candidates.

        For a query in another script, where cosines also depend on the script of the memory, it lies a little below
        the best of them.
        """
        if is_calibrated_script:
            return self.related
        return float(cosines.max(initial=-1.0)) - MAX_DEVIATIONS_BELOW_BEST * self.deviation

    def similarities(self, cosines: Vector) -> Vector:
        """Map cosines to 0…1."""
        return np.clip((cosines - self.unrelated) / (1 - self.unrelated), 0.0, 1.0)


def calibrate(questions: npt.NDArray[np.floating], answers: npt.NDArray[np.floating]) -> SimilarityCalibration:
    """Return the calibration of a model, given its unit vectors of `QUESTIONS_AND_ANSWERS`, one per row."""
    cosines = (questions @ answers.T)[~np.eye(len(questions), dtype=bool)]
    mean, deviation = float(cosines.mean()), float(cosines.std())
    return SimilarityCalibration(
        related=mean + RELATED_DEVIATIONS * deviation,
        unrelated=mean + UNRELATED_DEVIATIONS * deviation,
        deviation=deviation,
    )
