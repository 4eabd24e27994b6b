"""Tags of a text: those of whose words one is in it. Pure functions.

A word may be a phrase, in any script. It matches in any inflection and case, and never as part of another word.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.retrieval import text

WordLists = Mapping[str, Sequence[str]]
"""Names, each with the words that mention it."""

DEFAULT_TAGS: Final[WordLists] = {
    "finance": (
        *("invoice", "payment", "price", "refund", "billing", "overcharge", "bank", "receipt", "tax", "budget"),
        *("发票", "付款", "支付", "价格", "退款", "账单", "扣费", "转账", "收据", "税", "报销", "预算", "金额", "余额"),
    ),
    "account": (
        *("account", "login", "log in", "sign in", "password", "subscription", "membership", "renew"),
        *("账号", "账户", "帐号", "登录", "密码", "会员", "订阅", "续费"),
    ),
    "order": (
        *("order", "shipping", "shipment", "delivery", "tracking number", "parcel"),
        *("订单", "发货", "快递", "物流", "收货", "包裹"),
    ),
    "tech_support": (
        *("error", "bug", "crash", "timeout", "stack trace", "exception", "not working", "install", "outage"),
        *("报错", "错误", "崩溃", "超时", "异常", "故障", "无法", "安装", "闪退"),
    ),
}


_MARK: Final = re.compile("<([^>]*)>")


@dataclass(frozen=True, slots=True)
class Mention:
    """A name that a text mentions, with the folded words before and after it."""

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]


class Vocabulary:
    """Names that can be found in texts by their words."""

    def __init__(self, words: WordLists) -> None:
        marked = {name: [mark for word in each if (mark := text.marked(word))] for name, each in words.items()}
        self._marks = {name: marks for name, marks in marked.items() if marks}

    def names_in(self, content: str) -> list[str]:
        """Return the names that a text mentions, in the order of the vocabulary."""
        marked_text = text.marked(content)
        return [name for name, marks in self._marks.items() if any(mark in marked_text for mark in marks)]

    def mentions_in(self, content: str) -> list[Mention]:
        """Return the names that a text mentions, each where it is mentioned first."""
        marked_text = text.marked(content)
        return [
            Mention(name, stems(marked_text[:start]), stems(marked_text[start + len(mark) :]))
            for name, marks in self._marks.items()
            for mark in marks
            if (start := marked_text.find(mark)) >= 0
        ]


def stems(marked: str) -> tuple[str, ...]:
    """Return the stems of a text that `text.marked` has produced."""
    return tuple(_MARK.findall(marked))
