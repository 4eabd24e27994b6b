"""How text becomes terms."""

import pytest

from app.retrieval import text


def first_phrases(query: str) -> list[str]:
    return [" ".join(term.phrases[0]) for term in text.terms(query)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("café", "cafe\u0301"),
        ("ＡＰＩ", "api"),
        ("STRASSE", "straße"),
        ("İstanbul", "istanbul"),
        ("محمد", "مُحَمَّد"),
        ("ｶﾞｲﾄﾞ", "ガイド"),
        ("søk", "sok"),
        ("ﬁle", "file"),
    ],
)
def test_spellings_of_one_word_fold_to_the_same(one, other):
    """Forms that a reader takes for the same word become one term."""
    assert text.words(one) == text.words(other)


def test_camel_case_name_is_followed_by_its_parts():
    """Names are found as written and by their parts."""
    assert text.words("getHTTPResponse2") == ["gethttpresponse2", "get", "http", "response2"]


def test_language_names_with_symbols_are_words():
    """C++ and C# are words of their own, and neither is C."""
    assert [text.words(name)[0] for name in ("C++", "C#", "C")] == ["cplusplus", "csharp", "c"]


def test_unspaced_scripts_become_single_characters():
    """Chinese, Japanese, Korean and Thai are indexed by character; Latin words among them stay whole."""
    assert text.words("执行db-vac后") == ["执", "行", "db", "vac", "后"]


def test_plain_english_needs_no_extra_words():
    """Text that the index tokenises well is not stored twice."""
    assert text.index_text(["The signing keys rotate weekly.", None, "Twice a day"]) is None


def test_accents_that_the_index_folds_need_no_extra_words():
    """The index removes Latin diacritics without help."""
    assert text.index_text(["café crème"]) is None


def test_extra_words_keep_phrases_apart():
    """Words that were not adjacent are separated by a boundary, so no phrase matches across it."""
    assert text.index_text(["客户 said hello 服务"]) == f"客 户 {text.BOUNDARY} 服 务"


def test_doubled_character_stays_doubled():
    """Words that repeat a character are found by their phrase."""
    assert text.index_text(["谢谢"]) == "谢 谢"


def test_fields_are_kept_apart_in_the_extra_words():
    """The end of one field and the beginning of the next form no phrase."""
    assert text.index_text(["客户", "服务"]) == f"客 户 {text.BOUNDARY} 服 务"


def test_stop_words_are_dropped_when_other_words_remain():
    """A question is searched by its significant words."""
    assert first_phrases("When did Caroline go to the support group?") == ["caroline", "go", "support", "group"]


def test_query_of_stop_words_alone_keeps_them():
    """The Who can be searched for."""
    assert first_phrases("the who") == ["the", "who"]


def test_stop_words_are_those_of_the_language_of_the_query():
    """`die` is an article in German and a verb in English."""
    assert "die" not in first_phrases("die Server der Stadt")
    assert "die" in first_phrases("why do processes die")


def test_identifier_is_searched_whole_and_in_parts():
    """A path weighs most as written, and its parts weigh less."""
    terms = text.terms("src/payments/capture.py")
    assert terms[0].phrases == (("src", "payments", "capture", "py"),)
    assert [term.phrases[0] for term in terms[1:]] == [("src",), ("payments",), ("capture",), ("py",)]
    assert all(term.weight < terms[0].weight for term in terms[1:])


def test_contraction_is_not_an_identifier():
    """`Caroline's` searches for Caroline."""
    assert first_phrases("Caroline’s books") == ["caroline", "books"]


def test_unspaced_text_is_searched_by_pairs():
    """A sentence without spaces searches for each pair of adjacent characters."""
    assert first_phrases("黑豹队") == ["黑 豹", "豹 队"]


def test_single_character_is_searched_as_it_is():
    """Words of one character are words."""
    assert first_phrases("猫") == ["猫"]


@pytest.mark.parametrize("query", ["", "   ", "***", "()*", "\u200b", '"', "\x00", "。、", "-- ;"])
def test_query_without_words_has_no_terms(query):
    """Whitespace and punctuation are not terms."""
    assert text.terms(query) == ()


def test_huge_query_has_a_bounded_number_of_terms():
    """5,000 words cost no more than the first of them."""
    assert len(text.terms(" ".join(f"word{number}" for number in range(5_000)))) == text.MAX_TERMS


def test_repeated_word_is_searched_once():
    """Repeating a word does not raise its weight."""
    assert first_phrases("retry retry retry timeout") == ["retry", "timeout"]


def test_matches_have_the_spans_of_the_original_text():
    """Spans count characters of the original text, accents included."""
    original = "Der Cafe\u0301-Besitzer"
    spans = [original[slice(*match.span)] for match in text.matches(original, text.terms("café"))]
    assert spans == ["Cafe\u0301"]
