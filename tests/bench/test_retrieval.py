"""Search does on a small set of our own what it does on the public ones, and the benchmark says what it lacks."""

from pathlib import Path
from statistics import fmean

import pytest

from tests.bench import question_sets, retrieval

SETS = Path(__file__).parent / "sets"


def test_both_legs_together_beat_either_alone():
    """Stored and asked over HTTP with default settings, no question stays without an answer."""
    (by_mode,) = retrieval.answers(question_sets.read(SETS)).values()
    hybrid, keyword, semantic = (fmean(each.ndcg for each in by_mode[mode]) for mode in retrieval.MODES)
    assert hybrid > max(keyword, semantic)
    assert hybrid >= 0.9
    assert not any(each.is_empty for each in by_mode["hybrid"])


@pytest.mark.parametrize(
    ("found", "ndcg", "recall"),
    [(["a", "b"], 1.0, 1.0), (["x", "a"], 0.387, 0.5), (["x"], 0.0, 0.0), (["x"] * 10 + ["a", "b"], 0.0, 0.0)],
)
def test_an_answer_is_scored_by_its_first_ten(found: list[str], ndcg: float, recall: float):
    """An ideal order gives 1, and what stands behind the tenth place counts for nothing."""
    assert question_sets.ndcg(found, {"a", "b"}) == pytest.approx(ndcg, abs=0.001)
    assert question_sets.recall(found, {"a", "b"}) == recall


def test_a_missing_folder_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nobody takes an empty table for a result."""
    monkeypatch.setattr("sys.argv", ["retrieval", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit, match=r"no question sets in .*nowhere"):
        retrieval.main()
