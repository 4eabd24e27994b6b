"""Which actions a message requests."""

import pytest

from app.retrieval import intent
from app.retrieval.intent import DEFAULT_ACTIONS
from app.retrieval.tagging import Vocabulary

ACTIONS = Vocabulary(DEFAULT_ACTIONS)


@pytest.mark.parametrize(
    ("said", "actions"),
    [
        ("Can I get my money back?", ["refund"]),
        ("Okay, then renew it.", ["renew"]),
        ("My subscription needs to be renewed", ["renew"]),
        ("We'd like to cancel our contract", ["cancel"]),
        ("I was charged twice and want to cancel", ["cancel"]),
        ("Could you please open an account and close the old one?", ["open", "close"]),
        ("Please cancel order 7 and refund $20", ["refund", "cancel"]),
        ("Why can't I get a refund for the t-shirt?", ["refund"]),
        ("麻烦帮我续费一年", ["renew"]),
        ("会员续费，199 元", ["renew"]),
        ("把这个订单取消掉", ["cancel"]),
        ("能不能帮我开通国际漫游？", ["open"]),
        ("退款收到了，我想续费一年", ["renew"]),
        ("Thanks for the refund", []),
        ("I received the refund yesterday", []),
        ("退款已经到账了", []),
        ("I don't want to cancel", []),
        ("不用取消", []),
        ("The shop is open", []),
    ],
)
def test_clearly_requested_actions_are_found(said: str, actions: list[str]):
    """In wishes, questions, imperatives and subjects with a number; not what is done, refused or merely mentioned."""
    assert intent.requested_actions(said, ACTIONS) == actions


@pytest.mark.parametrize(
    "said", ["Hi", "Hello, can you help me?", "你好，在吗？", "Good morning! I have a question", ""]
)
def test_greeting_is_small_talk(said: str):
    """It is not worth a chunk."""
    assert intent.is_small_talk(said)


@pytest.mark.parametrize("said", ["What are your opening hours?", "你们几点营业？", "Order 7", "The gateway times out"])
def test_subject_is_not_small_talk(said: str):
    """A question about something, a number, a fact."""
    assert not intent.is_small_talk(said)
