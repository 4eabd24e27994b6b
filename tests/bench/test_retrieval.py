"""Search quality on the small question set of this project, and the measures of the retrieval benchmark."""

from pathlib import Path
from statistics import fmean

import pytest

from tests.bench import question_sets, retrieval

pytestmark = pytest.mark.process

SETS = Path(__file__).parent / "sets"


def test_hybrid_search_beats_either_retriever():
    """Over HTTP with default settings; no question is left without an answer."""
    (by_mode,) = retrieval.answers(question_sets.read(SETS)).values()
    hybrid, keyword, semantic = (fmean(each.ndcg for each in by_mode[mode]) for mode in retrieval.MODES)
    assert hybrid > max(keyword, semantic)
    assert hybrid >= 0.9
    assert not any(each.is_empty for each in by_mode["hybrid"])


@pytest.mark.parametrize(
    ("found", "ndcg", "recall"),
    [(["a", "b"], 1.0, 1.0), (["x", "a"], 0.387, 0.5), (["x"], 0.0, 0.0), (["x"] * 10 + ["a", "b"], 0.0, 0.0)],
)
def test_only_the_first_ten_results_are_scored(found: list[str], ndcg: float, recall: float):
    """An ideal order scores 1, and results after the tenth do not count."""
    assert question_sets.ndcg(found, {"a", "b"}) == pytest.approx(ndcg, abs=0.001)
    assert question_sets.recall(found, {"a", "b"}) == recall


def test_a_missing_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An empty table would look like a result."""
    monkeypatch.setattr("sys.argv", ["retrieval", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit, match=r"no question sets in .*nowhere"):
        retrieval.main()
