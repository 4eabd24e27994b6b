"""Intent detection: which of the known actions a message clearly requests, in Chinese and English. Pure functions."""

import re
from collections.abc import Iterator
from typing import Final

from app.retrieval import sentences, tagging, text
from app.retrieval.tagging import Vocabulary, WordLists

DEFAULT_ACTIONS: Final[WordLists] = {
    "refund": ("refund", "money back", "reimburse", "退款", "退钱", "退费"),
    "return": ("return it", "return my", "return this order", "send back", "退货", "换货"),
    "renew": ("renew", "prolong", "续费", "续订", "续约", "续期", "续一年", "续半年"),
    "cancel": ("cancel", "unsubscribe", "terminate my", "取消", "退订", "注销", "解约"),
    "open": ("open", "sign up", "subscribe", "activate", "开通", "开户", "开立", "订阅", "激活"),
    "close": ("close", "deactivate", "关闭", "销户", "停用"),
    "upgrade": ("upgrade", "升级"),
    "downgrade": ("downgrade", "降级"),
    "transfer": ("transfer", "转账", "过户"),
    "reset": ("reset", "unlock", "重置", "解锁", "解冻"),
    "invoice": ("send an invoice", "issue an invoice", "开票", "开发票", "开具发票"),
    "book": ("book", "reschedule", "预约", "预订", "改签"),
}

NUMBER: Final = re.compile(r"\d+(?:[.,:/-]\d+)*")

_CLAUSE_END: Final = re.compile(r"(?<=[,，;；:：\n])")
_QUESTION: Final = re.compile(
    r"[?？]|[吗呢]\s*$|多少|怎么|如何|什么|能不能|可不可以|能否|可否|哪"
    r"|^\W*(?:what|how|when|where|why|who|which|can|could|do|does|is|are|will|would|may)\b",
    re.IGNORECASE,
)
_REQUEST: Final = re.compile(
    r"\b(?:please|pls|kindly|(?:can|could|would) you|(?:can|could|may) i|(?:wants?|needs?|like|wish|must|should)"
    r"|help me|let['’]?s|go ahead|request|agree|confirm|(?:time|have) to)\b"
    r"|请|麻烦|帮|要|想|需|申请|办理|给我|希望|可以|把|同意|确认",
    re.IGNORECASE,
)
_FILLERS: Final = frozenset(
    tagging.stems(
        text.marked("ok okay yes yeah also and then now next so just 好的 那 再 另外 还有 对了 然后 顺便 我 就 先")
    )
)
"""After nothing but these, an action is an imperative: "then renew it"."""
_REFUSALS: Final = frozenset(tagging.stems(text.marked("not never without don didn doesn won wouldn 不 别 没 勿")))
_DONE: Final = re.compile(r"thank|receiv|arriv|got|was|were|been|alreadi|收到|到账|已|完成|成功|谢")
"""Near an action, these stems say that it is already done."""
_OR_NOT: Final = re.compile(r"(\w)不\1")
"""能不能 is a question; its 不 is not a refusal."""
_NEAR_BEFORE: Final = 4
_NEAR_AFTER: Final = 3
_ANOTHER: Final = re.compile(r"\b(?:also|another|besides|too|as well)\b|另外|另一|还有|还要|还想|再", re.IGNORECASE)
_SMALL_TALK: Final = re.compile(
    r"\b(?:hi|hello|hey|good|morning|afternoon|evening|day|can|could|you|someone|anyone|help|me|please|i|have|an?|need"
    r"|some|quick|question|about|how|are|is|there|support|with|something|my|thanks?|thank)\b"
    r"|你好|您好|在吗|在么|有人|请问|客服|我|想|要|咨询|一下|问|题|个|有|点|事|帮忙|谢谢|早上好|下午好|晚上好",
    re.IGNORECASE,
)
_SMALL_TALK_WORDS: Final = 2


def requested_actions(content: str, actions: Vocabulary) -> list[str]:
    """Return the actions that a message clearly requests or asks about, not those that are done or refused."""
    by_sentence = (_requested_in(sentence, actions) for sentence in sentences.of(_OR_NOT.sub(r"\1", content)))
    return list(dict.fromkeys(name for names in by_sentence for name in names))


def ends_with_question(content: str) -> bool:
    """Return whether the last sentence is a question."""
    return bool(_QUESTION.search(sentences.of(content)[-1]))


def asks_for_more(content: str) -> bool:
    """Return whether a message asks for something in addition to what was discussed."""
    return bool(_ANOTHER.search(content))


def is_small_talk(content: str) -> bool:
    """Return whether a message is hardly more than a greeting."""
    return not NUMBER.search(content) and len(text.words(_SMALL_TALK.sub(" ", content))) <= _SMALL_TALK_WORDS


def _requested_in(sentence: str, actions: Vocabulary) -> Iterator[str]:
    is_about_one = bool(_QUESTION.search(sentence) or NUMBER.search(sentence))
    for clause in _CLAUSE_END.split(sentence):
        is_request = is_about_one or bool(_REQUEST.search(clause))
        for mention in actions.mentions_in(clause):
            before = mention.before[-_NEAR_BEFORE:]
            near = f"{''.join(before)} {''.join(mention.after[:_NEAR_AFTER])}"
            if _DONE.search(near) or _REFUSALS.intersection(before):
                continue
            if is_request or _FILLERS.issuperset(mention.before):
                yield mention.name
