"""Conversations split into chunks."""

import time

import pytest

from app.retrieval import chunking
from app.retrieval.chunking import MAX_CHARACTERS, Utterance
from app.retrieval.intent import DEFAULT_ACTIONS
from app.retrieval.tagging import Vocabulary

ACTIONS = Vocabulary(DEFAULT_ACTIONS)
HOUR_MS = 3_600_000


def utterances(*turns: str) -> list[Utterance]:
    """Parse turns: `U:` is the customer, `A:` the answer."""
    return [Utterance({"U": "User", "A": "Assistant"}[turn[0]], turn[2:].strip()) for turn in turns]


def cut(*turns: str) -> list[str]:
    return [chunk.text for chunk in chunking.cut(utterances(*turns), ACTIONS)]


ENGLISH = (
    "U: Hello, can you help me?",
    "A: Hi, of course. How can I help?",
    "U: I was charged $49.90 twice for order 4417 and want a refund.",
    "A: I have refunded $49.90; it arrives within 5 days.",
    "U: Thanks for the refund. Please also renew my annual plan.",
    "A: Renewed until 2027-05-12 for $120.",
    "U: Great, thank you!",
)
CHINESE = (
    "U: 你好，在吗？",
    "A: 您好，请问有什么可以帮您？",
    "U: 我要退款，订单号是 12345。",
    "A: 请问付款金额是多少？",
    "U: 299 元",
    "A: 好的，已为您退款 299 元，3 天内到账。",
    "U: 退款收到了，我想续费一年会员。",
    "A: 年费 199 元，已续费到 2027 年 5 月。",
    "U: 谢谢！",
)


def test_refund_and_renewal_become_two_chunks_with_their_numbers():
    """Every price, order and date stays with its subject."""
    refund, renewal = cut(*ENGLISH)

    assert all(fact in refund for fact in ("refund", "4417", "$49.90", "5 days"))
    assert all(fact in renewal for fact in ("renew", "$120", "2027-05-12", "Great"))
    assert "$49.90" not in renewal


def test_refund_and_renewal_become_two_chunks_in_chinese():
    """The same without spaces between words, and with a counter-question in between."""
    refund, renewal = cut(*CHINESE)

    assert all(fact in refund for fact in ("退款", "12345", "299 元", "3 天"))
    assert all(fact in renewal for fact in ("续费", "199 元", "2027 年 5 月"))
    assert "299" not in renewal


def test_each_line_names_its_speaker():
    """A reader knows who said what."""
    assert cut("U: Why?", "A: Because.") == ["User: Why?\nAssistant: Because."]


@pytest.mark.parametrize(
    ("turns", "chunks"),
    [
        (("U: What are your opening hours?", "A: 9 to 18", "U: Cancel my order 12", "A: done"), 2),
        (("U: 你们几点营业？", "A: 9 点", "U: 帮我开通会员", "A: 已开通"), 2),
        (("U: 订单 12345 退款 299 元", "A: 好", "U: 会员续费 12 个月 199 元", "A: 好"), 2),
        (("U: 我想退款 299 元", "A: 好的", "U: 能不能续费？", "A: 199 元", "U: 那帮我续费", "A: 好"), 2),
        (("U: Refund order 1 for $10", "A: done", "U: Also refund order 2 for $20", "A: done"), 2),
        (("U: Please refund $5", "A: done", "U: When will the refund arrive?", "A: soon"), 1),
        (("U: I want a refund", "A: For which order?", "U: Please refund order 4417, $20", "A: done"), 1),
        (("U: It arrived broken, order 7", "A: Refund or repair?", "U: refund please", "A: $30 refunded"), 1),
        (("U: Please refund $5", "A: done", "U: Don't cancel my plan", "A: it stays"), 1),
        (("U: 退款 5 元", "A: 好", "U: 不用取消会员", "A: 好"), 1),
        (("U: Please refund $5", "A: I can cancel the plan or renew it", "U: thanks", "A: bye"), 1),
        (("U: Hi", "A: Hello, how can I help?", "U: Please open an account", "A: done"), 1),
    ],
)
def test_clear_request_for_another_action_starts_a_chunk(turns: tuple[str, ...], chunks: int):
    """The cases: requested, answered, refused, repeated, offered, and after a greeting only."""
    assert len(cut(*turns)) == chunks


def test_two_requests_with_one_answer_stay_together():
    """An answer to both must not be separated from either."""
    assert len(cut("U: Refund order 4417 ($49.90).", "U: Renew my plan for $99.", "A: Both are done.")) == 1


def test_two_unanswered_requests_become_two_chunks():
    """There is no answer to keep them together."""
    assert cut("U: Refund order 4417 ($49.90).", "U: Renew my plan for $99.") == [
        "User: Refund order 4417 ($49.90).",
        "User: Renew my plan for $99.",
    ]


def test_offer_moves_to_the_request_that_accepts_it():
    """The price in the offer stays with what it pays for."""
    assert cut("U: Refund order 4417.", "A: Done, $20. Would you like to renew for $99?", "U: Yes, renew it.") == [
        "User: Refund order 4417.\nAssistant: Done, $20.",
        "Assistant: Would you like to renew for $99?\nUser: Yes, renew it.",
    ]


def test_project_can_define_its_own_actions():
    """Configured words start chunks, and words that are removed no longer do."""
    own = Vocabulary({"escalate": ["escalate", "升级工单"]})
    said = utterances("U: Refund $5", "A: done", "U: Please escalate ticket 9", "A: ok", "U: Renew it", "A: ok")

    assert [len(chunk.text.splitlines()) for chunk in chunking.cut(said, own)] == [2, 4]


def test_chunk_has_the_time_of_its_first_message():
    """This puts memories in their place in time."""
    said = [
        Utterance("User", "Please refund $5", 1),
        Utterance("Assistant", "done", 2),
        Utterance("User", "Please renew my plan", 3),
    ]

    assert [chunk.at_epoch for chunk in chunking.cut(said, ACTIONS)] == [1, 3]


def test_message_after_a_long_pause_starts_a_chunk():
    """Unless it answers a question."""
    later = 2 * HOUR_MS

    def parts(answer: str) -> int:
        said = [
            Utterance("User", "My key 12 is broken", 0),
            Utterance("Assistant", answer, 1),
            Utterance("User", "It is the blue one", later),
        ]
        return len(chunking.cut(said, ACTIONS))

    assert (parts("I am sorry."), parts("Which one is it?")) == (2, 1)


def test_longer_conversation_keeps_its_earlier_chunks():
    """A client that resends a growing conversation repeats the existing chunks."""
    assert cut(*ENGLISH)[:1] == cut(*ENGLISH[:5])[:1]


def test_long_exchange_is_split_between_sentences():
    """Chunks start with their speaker, none is much longer than a model reads, and nothing is lost."""
    answer = " ".join(f"Sentence number {n} says something of its own." for n in range(100))
    chunks = cut("U: Tell me everything.", f"A: {answer}")

    assert max(map(len, chunks)) <= MAX_CHARACTERS + len("Assistant: ")
    assert all(chunk.endswith(".") for chunk in chunks)
    assert all(line.startswith(("User: ", "Assistant: ")) for chunk in chunks for line in chunk.splitlines())
    assert " ".join(" ".join(chunks).replace("Assistant: ", "").replace("User: ", "").split()) == (
        f"Tell me everything. {answer}"
    )


@pytest.mark.parametrize(
    "lead", ["The price is:\n$49.90 a month", "总价\n299 元", "It is due on. 2026-05-20", "See No. 4417"]
)
@pytest.mark.parametrize("filler", range(MAX_CHARACTERS - 60, MAX_CHARACTERS + 5, 5))
def test_number_is_never_separated_from_its_subject(lead: str, filler: int):
    """Wherever the limit falls, both are in one chunk."""
    chunks = cut(f"A: {'x' * filler}. {lead}. And more." + " More of it." * 40)

    assert any(lead in chunk for chunk in chunks)


@pytest.mark.parametrize("text", ["word " * 20_000, "字" * 100_000, "x" * 100_000, "7" * 100_000, "$1\n" * 30_000])
def test_huge_message_is_split_quickly_without_loss(text: str):
    """Even where there are no sentences and no words."""
    started = time.perf_counter()
    chunks = cut(f"A: {text}")

    assert time.perf_counter() - started < 5
    assert "".join(chunk.removeprefix("Assistant: ") for chunk in chunks).replace(" ", "").replace("\n", "") == (
        "".join(text.split())
    )


def test_long_answer_starts_in_the_chunk_of_its_question():
    """However long it is, the question is never alone."""
    chunks = cut("U: What does the contract say?", f"A: {'This is a clause of it. ' * 200}", "U: ok", "A: bye")

    assert chunks[0].startswith("User: What does the contract say?\nAssistant: This is a clause")
    assert len(chunks) > 3


def test_chunk_starts_given_by_a_model_are_used():
    """A chunk that is too long is still split."""
    said = utterances("U: one", "A: two", f"U: {'three. ' * 400}")

    chunks = chunking.cut_at(said, [0, 1])

    assert chunks[0].text == "User: one"
    assert len(chunks) > 2
