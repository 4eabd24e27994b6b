"""What a cosine means depends on the model."""

import numpy as np
import pytest

from app.retrieval import calibration


def model(unrelated: float, related: float, *, size: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of questions and answers with these cosines, give or take 0.01."""
    noise = np.random.default_rng(7).normal(scale=0.01, size=(size, size))
    cosines = np.full((size, size), unrelated) + np.eye(size) * (related - unrelated) + noise
    rest = np.sqrt(1 - (cosines**2).sum(axis=1, keepdims=True) / size)
    return np.hstack([cosines / np.sqrt(size), rest]), np.hstack([np.eye(size) * np.sqrt(size), np.zeros((size, 1))])


@pytest.mark.parametrize(("unrelated", "related"), [(0.05, 0.5), (0.73, 0.84)])
def test_what_is_near_is_found_out_from_the_model(unrelated, related):
    """Between the cosines of strangers and those of questions and answers, wherever a model has them."""
    measured = calibration.measured(*model(unrelated, related))
    assert unrelated < measured.unrelated < measured.related < related


def test_shown_nearness_is_a_share():
    """Strangers are 0, the same text is 1."""
    shown = calibration.Nearness(related=0.8, unrelated=0.75, deviation=0.02).shown(np.array([0.1, 0.75, 0.875, 1.0]))
    assert shown.tolist() == pytest.approx([0.0, 0.0, 0.5, 1.0])


def test_a_script_that_was_not_measured_goes_by_its_best():
    """Where nobody knows what a cosine means, those about as near as the nearest are related."""
    model = calibration.Nearness(related=0.8, unrelated=0.75, deviation=0.02)
    cosines = np.array([0.70, 0.77, 0.79])
    assert (cosines >= model.least(cosines, is_measured_script=True)).tolist() == [False, False, False]
    assert (cosines >= model.least(cosines, is_measured_script=False)).tolist() == [False, True, True]
