"""What a cosine means depends on the model."""

import numpy as np
import pytest

from app.retrieval import calibration
from app.retrieval.calibration import SimilarityCalibration


def model(unrelated: float, related: float, *, size: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of questions and answers with these cosines, give or take 0.01."""
    noise = np.random.default_rng(7).normal(scale=0.01, size=(size, size))
    cosines = np.full((size, size), unrelated) + np.eye(size) * (related - unrelated) + noise
    rest = np.sqrt(1 - (cosines**2).sum(axis=1, keepdims=True) / size)
    return np.hstack([cosines / np.sqrt(size), rest]), np.hstack([np.eye(size) * np.sqrt(size), np.zeros((size, 1))])


@pytest.mark.parametrize(("unrelated", "related"), [(0.05, 0.5), (0.73, 0.84)])
def test_thresholds_are_measured_from_the_model(unrelated, related):
    """They lie between the cosines of unrelated texts and those of questions and answers, wherever a model has them."""
    measured = calibration.calibrate(*model(unrelated, related))
    assert unrelated < measured.unrelated < measured.related < related


def test_similarities_are_between_0_and_1():
    """Unrelated texts have 0, equal texts 1."""
    model = SimilarityCalibration(related=0.8, unrelated=0.75, deviation=0.02)
    similarities = model.similarities(np.array([0.1, 0.75, 0.875, 1.0]))
    assert similarities.tolist() == pytest.approx([0.0, 0.0, 0.5, 1.0])


def test_threshold_for_an_uncalibrated_script_follows_the_best_cosine():
    """Where the meaning of a cosine is unknown, those close to the best one are related."""
    model = SimilarityCalibration(related=0.8, unrelated=0.75, deviation=0.02)
    cosines = np.array([0.70, 0.77, 0.79])
    assert (cosines >= model.threshold(cosines, is_calibrated_script=True)).tolist() == [False, False, False]
    assert (cosines >= model.threshold(cosines, is_calibrated_script=False)).tolist() == [False, True, True]
