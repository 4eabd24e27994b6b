"""How near is near: texts that have nothing in common have a cosine of 0.05 with one model and of 0.73 with another.

A model is measured once, on pairs of a question with somebody else's answer. Knows no model.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from app.retrieval.ranking import Vector

RELATED_DEVIATIONS: Final = 3.4
"""Questions about something else stay below this: with the default model 95 of 100 have no memory nearer."""
UNRELATED_DEVIATIONS: Final = 2.1
BEHIND_DEVIATIONS: Final = 2.0
MEASURED_SCRIPT: Final = "Latn"

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
class Nearness:
    """What cosines mean with one model: from `unrelated` down nothing, from `related` on something.

    `deviation` is how much those of strangers differ.
    """

    related: float
    unrelated: float
    deviation: float

    def least(self, cosines: Vector, *, is_measured_script: bool) -> float:
        """Return the cosine from which on memories have something to do with a question that is as near to them.

        Other scripts have other cosines, by the script of the memory too: there it is those about as near as the best.
        """
        if is_measured_script:
            return self.related
        return float(cosines.max(initial=-1.0)) - BEHIND_DEVIATIONS * self.deviation

    def shown(self, cosines: Vector) -> Vector:
        """Map cosines to 0…1."""
        return np.clip((cosines - self.unrelated) / (1 - self.unrelated), 0.0, 1.0)


def measured(questions: npt.NDArray[np.floating], answers: npt.NDArray[np.floating]) -> Nearness:
    """Return what the cosines of a model mean, from its unit vectors of `QUESTIONS_AND_ANSWERS`, a row each."""
    cosines = (questions @ answers.T)[~np.eye(len(questions), dtype=bool)]
    mean, deviation = float(cosines.mean()), float(cosines.std())
    return Nearness(mean + RELATED_DEVIATIONS * deviation, mean + UNRELATED_DEVIATIONS * deviation, deviation)
