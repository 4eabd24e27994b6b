"""How text becomes words."""

import pytest

from app.retrieval import text


def asked(query: str) -> list[str]:
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
def test_spellings_of_one_word_are_one_word(one, other):
    """Forms that a reader takes for the same word fold to the same."""
    assert text.words(one) == text.words(other)


def test_a_camel_case_name_is_followed_by_its_parts():
    """Names are found as they stand and by what they are made of."""
    assert text.words("getHTTPResponse2") == ["gethttpresponse2", "get", "http", "response2"]


def test_languages_whose_names_are_signs_stay_themselves():
    """C++ and C# are words of their own, and C is neither."""
    assert [text.words(name)[0] for name in ("C++", "C#", "C")] == ["cplusplus", "csharp", "c"]


def test_unspaced_scripts_become_single_characters():
    """Chinese, Japanese, Korean and Thai are indexed by characters, and Latin words in them stay whole."""
    assert text.words("执行db-vac后") == ["执", "行", "db", "vac", "后"]


def test_plain_english_needs_no_extra_words():
    """Text that the index reads well by itself is not stored twice."""
    assert text.index_text(["The signing keys rotate weekly.", None, "Twice a day"]) is None


def test_a_word_without_decoration_is_left_to_the_index():
    """Accents that the index folds by itself cost no extra word."""
    assert text.index_text(["café crème"]) is None


def test_extra_words_keep_phrases_apart():
    """Between extra words that were not neighbours stands a boundary, so no phrase matches across it."""
    assert text.index_text(["客户 said hello 服务"]) == f"客 户 {text.BOUNDARY} 服 务"


def test_a_doubled_character_stays_doubled():
    """Words that repeat a character are found by their phrase."""
    assert text.index_text(["谢谢"]) == "谢 谢"


def test_fields_are_kept_apart_in_the_extra_words():
    """The end of one field and the beginning of the next make no phrase."""
    assert text.index_text(["客户", "服务"]) == f"客 户 {text.BOUNDARY} 服 务"


def test_stop_words_go_when_something_else_is_left():
    """A question is asked by its telling words."""
    assert asked("When did Caroline go to the support group?") == ["caroline", "go", "support", "group"]


def test_a_query_of_stop_words_alone_keeps_them():
    """The Who can be searched for."""
    assert asked("the who") == ["the", "who"]


def test_stop_words_are_those_of_the_language_that_is_spoken():
    """`die` is an article in German and a verb in English."""
    assert "die" not in asked("die Server der Stadt")
    assert "die" in asked("why do processes die")


def test_an_identifier_is_asked_as_a_whole_and_in_parts():
    """A path counts most as it stands, and its pieces count less."""
    terms = text.terms("src/payments/capture.py")
    assert terms[0].phrases == (("src", "payments", "capture", "py"),)
    assert [term.phrases[0] for term in terms[1:]] == [("src",), ("payments",), ("capture",), ("py",)]
    assert all(term.weight < terms[0].weight for term in terms[1:])


def test_a_contraction_is_no_identifier():
    """`Caroline's` asks for Caroline."""
    assert asked("Caroline’s books") == ["caroline", "books"]


def test_unspaced_text_is_asked_by_pairs():
    """A sentence without spaces asks for each pair of characters beside each other."""
    assert asked("黑豹队") == ["黑 豹", "豹 队"]


def test_a_single_character_is_asked_as_it_is():
    """Words of one character are words."""
    assert asked("猫") == ["猫"]


@pytest.mark.parametrize("query", ["", "   ", "***", "()*", "\u200b", '"', "\x00", "。、", "-- ;"])
def test_what_holds_no_word_asks_for_nothing(query):
    """Blank and punctuation are no terms."""
    assert text.terms(query) == ()


def test_a_huge_query_asks_for_a_bounded_number_of_terms():
    """5,000 words cost no more than the first of them."""
    assert len(text.terms(" ".join(f"word{number}" for number in range(5_000)))) == text.MAX_TERMS


def test_a_repeated_word_is_asked_once():
    """Saying a word twice does not make it worth twice."""
    assert asked("retry retry retry timeout") == ["retry", "timeout"]


def test_matches_stand_where_the_text_was_written():
    """Spans count characters of the original text, accents included."""
    original = "Der Cafe\u0301-Besitzer"
    spans = [original[slice(*match.span)] for match in text.matches(original, text.terms("café"))]
    assert spans == ["Cafe\u0301"]
