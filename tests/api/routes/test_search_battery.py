"""Whatever a person types is searched for as text: it finds its memory, finds nothing, or is clearly refused."""

import json
from collections.abc import Iterator

import pytest

from tests.conftest import Server, Tenant, make_tenant

SLOW_MS = 1_000

PAYMENTS = "PaymentGateway.captureOrder() raised a TypeError in src/payments/capture.py:42 after E_CONN_RESET"
LIMIT = "the rate-limit of api_v2 in v3.11.4 is 20% too low, see issue #1234"
LANGUAGES = "ported the parser from C++ to Rust; C# and F# stay, .NET goes"
SQL = "SELECT * FROM users WHERE name = 'O''Brien' AND deleted_at IS NULL; -- soft delete"
SHELL = "run `kubectl get pods -n prod | grep -v Running` and export MAX_RETRIES=5"
WINDOWS = r"the log lies in C:\Users\svc\AppData\worker.log"
MAIL = "mail ops+alerts@example.com or open https://status.example.com/incidents?id=77"
CHINESE = "数据库连接超时，重启后恢复。执行db-vac后释放磁盘"
JAPANESE = "サーバーを再起動してメモリリークを直した"
KOREAN = "서버를 재시작한 뒤 메모리 누수를 고쳤다"
THAI = "รีสตาร์ทฐานข้อมูลแล้ว"
RUSSIAN = "сервер перезапущен после сбоя, ёлка зелёная"
ARABIC = "إعادة تشغيل الخادم بعد العُطل"
HEBREW = "אתחול השרת אחרי התקלה"
HINDI = "डेटाबेस फिर से चालू किया"
GREEK = "Επανεκκίνηση του διακομιστή"
FRENCH = "crème brûlée au café de l'Hôtel, servie à Noël"
GERMAN = "die Straße nach İstanbul wird größer"
VIETNAMESE = "khởi động lại máy chủ Đà Nẵng"
EMOJI = "deployed 🚀 on friday 👩‍💻 with a flag 🇩🇪"
FULL_WIDTH = "ＡＰＩ　キーを更新した"
MATHS = "the learning rate η ≈ 0.001 and loss ≤ 1e-4"
KEYS = "signing keys rotate weekly without downtime"

MEMORIES = (
    *(PAYMENTS, LIMIT, LANGUAGES, SQL, SHELL, WINDOWS, MAIL, CHINESE, JAPANESE, KOREAN, THAI, RUSSIAN, ARABIC, HEBREW),
    *(HINDI, GREEK, FRENCH, GERMAN, VIETNAMESE, EMOJI, FULL_WIDTH, MATHS, KEYS),
)

FOUND = [
    # operators of query languages are words or nothing
    ("signing AND keys", KEYS),
    ("signing OR NOT keys", KEYS),
    ('"signing keys', KEYS),
    ("signing NEAR/3 keys", KEYS),
    ("signing* ^keys", KEYS),
    ("title:signing -keys +weekly", KEYS),
    ("(signing keys", KEYS),
    ("{signing} : [keys]", KEYS),
    ("%signing_keys%", KEYS),
    ("'; DROP TABLE memory_items; -- signing keys", KEYS),
    ("signing\tkeys\r\nweekly", KEYS),
    ("SIGNING KEYS", KEYS),
    ("weekly keys signing", KEYS),
    ("how often does the signing key get rotated?", KEYS),
    ("signing keys zebra", KEYS),
    ("rotating signed key", KEYS),
    ("signing keys downtiem", KEYS),
    # code, paths, versions
    ("PaymentGateway", PAYMENTS),
    ("payment gateway", PAYMENTS),
    ("captureOrder()", PAYMENTS),
    ("TypeError", PAYMENTS),
    ("src/payments/capture.py", PAYMENTS),
    ("capture.py:42", PAYMENTS),
    ("E_CONN_RESET", PAYMENTS),
    ("conn reset", PAYMENTS),
    ("rate-limit", LIMIT),
    ("rate limit", LIMIT),
    ("v3.11.4", LIMIT),
    ("3.11.4", LIMIT),
    ("api_v2", LIMIT),
    ("20%", LIMIT),
    ("#1234", LIMIT),
    ("C++", LANGUAGES),
    ("c#", LANGUAGES),
    (".NET", LANGUAGES),
    ("O'Brien", SQL),
    ("deleted_at IS NULL", SQL),
    ("kubectl get pods -n prod", SHELL),
    ("MAX_RETRIES=5", SHELL),
    (r"C:\Users\svc\AppData\worker.log", WINDOWS),
    ("ops+alerts@example.com", MAIL),
    ("https://status.example.com/incidents?id=77", MAIL),
    # scripts
    ("超时", CHINESE),
    ("超", CHINESE),
    ("数据库连接为什么超时？", CHINESE),
    ("vac", CHINESE),
    ("メモリリーク", JAPANESE),
    ("再起動", JAPANESE),
    ("ｻｰﾊﾞｰ", JAPANESE),
    ("서버", KOREAN),
    ("재시작", KOREAN),
    ("ฐานข้อมูล", THAI),
    ("СБОЯ", RUSSIAN),
    ("елка", RUSSIAN),
    ("الخادم", ARABIC),
    ("العطل", ARABIC),
    ("השרת", HEBREW),
    ("डेटाबेस", HINDI),
    ("ΔΙΑΚΟΜΙΣΤΗ", GREEK),
    ("creme brulee", FRENCH),
    ("cafe\u0301", FRENCH),
    ("noel", FRENCH),
    ("strasse istanbul", GERMAN),
    ("da nang", VIETNAMESE),
    ("🚀", EMOJI),
    ("👩‍💻", EMOJI),
    ("api", FULL_WIDTH),
    ("キー", FULL_WIDTH),
    ("η", MATHS),
    ("0.001", MATHS),
    # size and noise around a word
    ("signing " * 5_000 + "keys", KEYS),
    ("signing keys " + "x" * 200_000, KEYS),
    ("(" * 3_000 + "signing" + ")" * 3_000 + " keys", KEYS),
    ("\u202esigning\u202c \u200bkeys\ufeff", KEYS),
]

EMPTY = [
    *(
        "",
        " ",
        "\n\t",
        "?",
        "***",
        '"',
        "''",
        "()",
        "()*",
        "-",
        "--",
        "^",
        "NEAR(",
        "\\",
        "%",
        "_",
        "。、！",
        "…",
        "\u200b",
    ),
    *("\u202e", "\ufeff", "zzqx-9931", "x" * 200_000, "~" * 5_000, "🦖", "龘", "q"),
]


@pytest.fixture(scope="module")
def library(server: Server) -> Iterator[Tenant]:
    """A project with every memory of the battery."""
    tenant = make_tenant(server, "battery")
    bodies = [{"projectId": tenant.project_id, "content": content} for content in MEMORIES]
    tenant.http.post("/v1/memories/batch", json=bodies).raise_for_status()
    yield tenant
    tenant.http.close()


def search(library: Tenant, query: str) -> dict:
    reply = library.http.post("/v1/search", json={"projectId": library.project_id, "query": query})
    assert reply.status_code == 200, reply.text[:300]
    answer: dict = reply.json()
    assert answer["search"]["durationMs"] < SLOW_MS
    return answer


def named(query: str) -> str:
    return query if len(query) < 60 else f"{query[:20]}… of {len(query)}"


@pytest.mark.parametrize(("query", "content"), FOUND, ids=lambda value: named(value))
def test_a_query_finds_its_memory_first(library: Tenant, query: str, content: str):
    """No character has special meaning, and none gets in the way."""
    assert search(library, query)["memories"][0]["content"] == content


@pytest.mark.parametrize("query", EMPTY, ids=named)
def test_a_query_without_content_finds_nothing(library: Tenant, query: str):
    """Blank, punctuation and nonsense return nothing, not the newest rows."""
    answer = search(library, query)
    assert (answer["memories"], answer["nextCursor"]) == ([], None)


@pytest.mark.parametrize("text", ['"a\\u0000b"', '"\\ud800"', "17", "[]", '"' + "x" * 1_000_001 + '"'], ids=named)
def test_a_query_that_is_not_text_is_refused(library: Tenant, text: str):
    """NUL, half a surrogate pair, another type and more than a million characters are a clear 400."""
    body = f'{{"projectId": {json.dumps(library.project_id)}, "query": {text}}}'
    reply = library.http.post("/v1/search", content=body, headers={"Content-Type": "application/json"})
    assert (reply.status_code, reply.json()["error"]) == (400, "ValidationError")


@pytest.mark.parametrize(("query", "content"), FOUND, ids=lambda value: named(value))
def test_a_snippet_holds_the_original_text(library: Tenant, query: str, content: str):
    """Without its marks it is a part of the memory, letter by letter."""
    snippet = search(library, query)["memories"][0]["snippet"]
    assert snippet.replace("<mark>", "").replace("</mark>", "").strip("…") in content
    assert "<mark>" in snippet
