"""Both dialects find the same memories for the same queries, with the same ranking."""

import base64
import itertools
import random
import string
import unicodedata
from collections.abc import Iterator

import psycopg
import pytest

from app.retrieval.text import index_words
from tests.api.routes.test_search_battery import EMPTY, FOUND, MEMORIES
from tests.databases import PostgresqlDatabases, SqliteDatabases
from tests.postgresql import Cluster
from tests.services import library
from tests.services.library import Library
from tests.services.search.test_engine import SHOWN

_RANDOM = random.Random(7)
_LONG_WORD = "supercalifragilistic" * 125
_BLOB = base64.b64encode(_RANDOM.randbytes(675_000)).decode()
_VOCABULARY = [f"w{number:x}q" for number in range(130_000)]
_STORY = [_RANDOM.choice(("ships", "sailed", "over", "calm", "waters", "towards", "harbours")) for _ in range(25_000)]
for _index in (0, 1_990, 1_999, 2_000, 2_007, 2_015, 3_999, 12_345, 24_995):
    _STORY[_index : _index + 3] = [f"anchor{_index}", f"chain{_index}", f"winch{_index}"]

HUGE = {
    "words": " ".join(_VOCABULARY),
    "blob": f"the attachment follows: {_BLOB} and ends here with a marmalade",
    "word": f"a very long {_LONG_WORD} word",
    "story": " ".join(_STORY),
    "chinese": "数据库连接超时" * 3_000 + "终点站",
}
TEXTS = (
    *(HUGE.values()),
    *MEMORIES,
    *SHOWN,
    "ﬁne ﬂowers of the ﬀ oﬃce, x² + y³ = z¹, H₂O, ½ cup, № 5, ™ and ⅷ",
    unicodedata.normalize("NFD", "Ångström décida naïvement à Århus, šíření žluťoučký"),
    unicodedata.normalize("NFC", "Ångström décida naïvement à Århus, šíření žluťoučký"),
    "'quoted' \"twice\" & | ! <-> :* (a | b) & !c \\'escaped\\' back\\slash 'it''s'",
    "foo:*bar baz:ABCD qux:1A <2> 'phrase' %s %(name)s {} $1 :name ?",
    "v1.2.3-rc.1+build.5 at /usr/local/lib/python3.11/site-packages/x_y-z.py:120:5",
    "getHTTPResponseCode2 XMLHttpRequest snake_case_name kebab-case-name SCREAMING_CASE iOS17",
    "ＦＵＬＬ　ｗｉｄｔｈ ｶﾀｶﾅ カタカナ ﾊﾝｶｸ １２３",
    "ภาษาไทยไม่เว้นวรรค ລາວ မြန်မာ ខ្មែរ 한국어를 배운다 日本語を学ぶ 學習中文",
    "😀👍🏽👨‍👩‍👧‍👦🏳️‍🌈 ❤️ ✅ → ⇒ ★",
    "connections connected connecting connects relational conditional happily happier running ran",
    "O'Neill's mother-in-law doesn't can't won't I'm l'été",
    "as us a u i is it s x's",
    "words\x0bwith\x1fcontrols\x7fbetween\u2028and\u00a0spaces\u00adsoft",
)
QUERIES = (
    *(query for query, _ in FOUND),
    *EMPTY,
    *(query for queries in SHOWN.values() for query in queries),
    *(_VOCABULARY[place] for place in (0, 1, 1_999, 2_000, 2_001, 64_999, 129_999)),
    *(" ".join(_VOCABULARY[place : place + 2]) for place in (1_998, 1_999, 2_000)),
    *(f"anchor{place}/chain{place}" for place in (0, 1_990, 1_999, 2_000, 2_007, 2_015, 3_999, 12_345, 24_995)),
    *(f"chain{place}.winch{place}" for place in (1_999, 24_995)),
    *("marmalade", "attachment follows", _BLOB[9:3_000], _BLOB[:200], _LONG_WORD, "a very long word"),
    *("终点站", "时终", "时数", "超时数据"),
    *("fine", "ﬁne", "office", "x²", "x2", "h2o", "½", "1/2", "no 5", "№", "tm", "viii"),
    *("ångström", "angstrom", unicodedata.normalize("NFD", "žluťoučký"), "zlutoucky", "naïvement"),
    *(
        "'quoted'",
        "&",
        "| !",
        "<->",
        ":*",
        "a & !c",
        "it''s",
        "back\\slash",
        "'",
        "\\'",
        "foo:*",
        "foo:bar",
        "baz:ABCD",
    ),
    *("%s", "%(name)s", "{}", "$1", ":name", "?", "qux:1A"),
    *("v1.2.3", "1.2.3-rc.1", "build.5", "/usr/local/lib", "python3.11", "x_y-z.py:120", "site-packages"),
    *("http response", "getHTTPResponseCode2", "response code", "XMLHttpRequest", "snake case", "kebab-case", "ios17"),
    *(
        "full width",
        "カタカナ",
        "ｶﾀｶﾅ",
        "ハンカク",
        "123",
        "ไทย",
        "ລາວ",
        "မြန်",
        "ខ្មែរ",
        "한국어",
        "日本語",
        "学ぶ",
        "中文",
    ),
    *("😀", "👍", "👍🏽", "👨‍👩‍👧‍👦", "❤", "→", "★"),
    *(
        "connect",
        "connection",
        "relate",
        "happy",
        "run",
        "oneill",
        "o'neill",
        "mother in law",
        "doesn't",
        "été",
        "lete",
    ),
    *("controls", "and spaces", "spacessoft", "soft", "connexions", "harbors", "sailed calm waters"),
)


@pytest.fixture(scope="module")
def postgresql(cluster: Cluster) -> PostgresqlDatabases:
    return PostgresqlDatabases(cluster)


@pytest.fixture(scope="module")
def both(
    postgresql: PostgresqlDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Library, Library]]:
    """The same memories on each dialect."""
    folder = tmp_path_factory.mktemp("both")
    sqlite = SqliteDatabases(folder / "template.db")
    with library.opened(sqlite, folder / "one") as one, library.opened(postgresql, folder / "other") as other:
        for shelf in (one, other):
            shelf.remember_all([{"narrative": text, "created_at_epoch": 1} for text in TEXTS])
            shelf.remember_all(
                [
                    {
                        "title": "Retry storm",
                        "subtitle": "jitter",
                        "facts": ["a\tb\\c", 'says "hi"', "naïve café"],
                        "concepts": ["gotcha", "超时"],
                        "created_at_epoch": 1,
                    }
                ]
            )
        yield one, other


def scores(shelf: Library, query: str) -> dict[str, float]:
    """Return the score of each hit of a query, in order."""
    return {(hit.memory.narrative or "")[:60]: hit.score for hit in shelf.ask(query, limit=100).hits}


def query_id(query: str) -> str:
    return query.encode("unicode_escape").decode()[:40]


@pytest.mark.parametrize(
    "query", [*QUERIES, "jitter", "retry storm", "b c", "says hi", "naive", "gotcha"], ids=query_id
)
def test_dialects_return_the_same_hits_and_scores(both: tuple[Library, Library], query: str):
    """The same memories in the same order, with scores within 0.01."""
    one, other = (scores(shelf, query) for shelf in both)

    assert list(one) == list(other)
    assert other == pytest.approx(one, abs=0.01)


@pytest.mark.parametrize("name", HUGE)
def test_huge_text_is_indexed_within_the_statement_timeout(postgresql: PostgresqlDatabases, tmp_path, name: str):
    """And a search finds its end."""
    with library.opened(postgresql, tmp_path) as shelf:
        row = shelf.remember(HUGE[name])
        last = HUGE[name].split()[-1][-4_000:]
        assert [hit.memory.id for hit in shelf.ask(last).hits] == [row.id]


def test_query_words_equal_index_words(postgresql: PostgresqlDatabases, tmp_path):
    """For each character of Unicode 3.2, and for words at the length limits of stemming."""
    characters = (chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000)
    texts = [f"q{letter}Z" for letter in characters if unicodedata.ucd_3_2_0.category(letter) not in ("Cn", "Co")]
    short = ["".join(word) for length in (1, 2) for word in itertools.product(string.ascii_lowercase, repeat=length)]
    texts += [*short, *(f"{'long' * 15}{'x' * more}ing" for more in range(4))]  # words of 3 to 64 bytes are stemmed
    postgresql.url(tmp_path)
    with psycopg.connect(postgresql.owner_url(tmp_path).replace("+psycopg", "")) as connection:
        rows = connection.execute(
            "SELECT cmem_words(body) FROM unnest(%s::text[]) WITH ORDINALITY AS t(body, n) ORDER BY n", (texts,)
        )
        different = [text for text, (words,) in zip(texts, rows, strict=True) if words != index_words(text)]
    postgresql.drop(tmp_path)

    assert different == []
